/* SPDX-License-Identifier: Apache-2.0
 * On a terminal one line that is rewritten; otherwise a line per log.every steps.  Rank 0 speaks.
 */
#include <config.h>
#include "engine/train/progress.h"
#include "engine/process/launch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Of this program alone: getrusage also counts what the process was before exec, a large launcher. */
int64_t hd_peak_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	long long kilobytes = -1;
	char line[256];
	struct rusage r;

	while (f && kilobytes < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %lld kB", &kilobytes) != 1)
			kilobytes = -1;
	if (f)
		fclose(f);
	if (kilobytes >= 0)
		return kilobytes * 1024;
	getrusage(RUSAGE_SELF, &r);
	return (int64_t)r.ru_maxrss * 1024;
}

static void count_text(char *out, size_t n, double x)
{
	if (x >= 1e9)
		snprintf(out, n, "%.2f G", x / 1e9);
	else if (x >= 1e6)
		snprintf(out, n, "%.1f M", x / 1e6);
	else
		snprintf(out, n, "%.1f K", x / 1e3);
}

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

static void bytes_text(char *out, size_t n, double b)
{
	if (b >= 1e9)
		snprintf(out, n, "%.2f GB", b / 1e9);
	else
		snprintf(out, n, "%.1f MB", b / 1e6);
}

void hd_show_open(struct hd_show *s, struct hd_job *j, int64_t steps)
{
	s->j = j;
	s->steps = steps;
	s->every = j->log.every;
	s->speaks = j->world.rank == 0;
	s->terminal = s->speaks && hd_launch_terminal();
}

/* What a step's share is of. */
static const char *basis(const struct hd_job *j)
{
	return hd_device_in_host(j->device) ? "matmul rate" : "peak";
}

void hd_show_begin(struct hd_show *s, const struct hd_progress *at)
{
	const struct hd_plan *p = hd_job_any_plan(s->j);
	char mem[32], size[32];

	bytes_text(mem, sizeof(mem), (double)s->j->arena_bytes);
	count_text(size, sizeof(size), (double)hd_plan_parameters(p));
	if (!s->speaks)
		return;
	printf("%s, %s parameters; %lld rank%s x %d thread%s", p->model.family->name, size, (long long)p->ranks,
	       plural(p->ranks), s->j->threads, plural(s->j->threads));
	for (int a = 0; a < p->naxes; a++)
		printf("%s%s %lld", a ? " x " : ": ", p->axes[a]->v.name, (long long)p->axes[a]->v.n);
	printf("\n%lld sequence%s of %lld tokens a step: %lld micro-batch%s of %lld on each of %lld replica%s\n",
	       (long long)(p->batch * p->micros), plural(p->batch * p->micros), (long long)p->model.seq,
	       (long long)p->micros, p->micros == 1 ? "" : "es", (long long)p->micro_batch, (long long)p->replicas,
	       plural(p->replicas));
	if (s->j->train.batch.steps)
		printf("the batch grows to that (global_batch_ramp = %s)\n",
		       hd_section_str(s->j->train.section, "global_batch_ramp"));
	printf("planned memory of this rank: %s; ready after %.2f s", mem, hd_seconds() - s->j->started);
	if (at->step)
		printf("; going on after step %lld", (long long)at->step);
	printf("\nproducts: %.4g MFLOP a token; %s %.4g GFLOP/s a rank\n", s->j->flops_per_token / 1e6, basis(s->j),
	       s->j->rate / 1e9);
	fflush(stdout);
}

static void eta_text(char *out, size_t n, double s)
{
	if (s >= 3600)
		snprintf(out, n, "%.0fh%02.0fm", floor(s / 3600), floor(fmod(s, 3600) / 60));
	else if (s >= 60)
		snprintf(out, n, "%.0fm%02.0fs", floor(s / 60), floor(fmod(s, 60)));
	else
		snprintf(out, n, "%.0fs", s);
}

void hd_show_step(struct hd_show *s, const struct hd_numbers *n)
{
	char eta[32];

	s->average = s->average > 0 ? 0.9 * s->average + 0.1 * n->seconds : n->seconds;
	if (!s->speaks || (!s->terminal && n->step % s->every && n->step != s->steps))
		return;
	eta_text(eta, sizeof(eta), s->average * (double)(s->steps - n->step));
	printf("%sstep %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s  %.0f%% of %s  ETA %s%s",
	       s->terminal ? "\r" : "", (long long)n->step, (long long)s->steps, n->loss, n->norm, n->lr,
	       n->tokens_per_second, 100 * n->share, basis(s->j), eta, s->terminal ? "   " : "\n");
	s->open_line = s->terminal;
	if (n->step == s->steps)
		hd_show_line(s);
	fflush(stdout);
}

void hd_show_line(struct hd_show *s)
{
	if (s->open_line)
		putchar('\n');
	s->open_line = 0;
	fflush(stdout);
}

void hd_show_eval(struct hd_show *s, int64_t step, double loss, int64_t tokens)
{
	if (!s->speaks)
		return;
	hd_show_line(s);
	printf("step %lld  valid_loss %.4f  (perplexity %.3f, %lld tokens)\n", (long long)step, loss, exp(loss),
	       (long long)tokens);
	fflush(stdout);
}

void hd_show_end(struct hd_show *s)
{
	char planned[32], measured[32];

	bytes_text(planned, sizeof(planned), (double)s->j->arena_bytes);
	bytes_text(measured, sizeof(measured), hd_comm_max((double)hd_peak_bytes()));
	if (s->speaks)
		printf("memory: planned %s, the process' high-water mark %s\n", planned, measured);
	fflush(stdout);
}
