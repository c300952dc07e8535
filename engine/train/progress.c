/* SPDX-License-Identifier: Apache-2.0
 * Prints the progress of a run. On a terminal, it rewrites one line; otherwise it prints a line per log.every steps.
 * Only rank 0 prints.
 */
#include <config.h>
#include "engine/train/progress.h"
#include "engine/comm/comm.h"
#include "engine/graph/mesh.h"
#include "engine/human/human.h"
#include "engine/process/launch.h"
#include "engine/run/autotune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Returns the value of a line of /proc/self/status in bytes, or -1 if the line does not exist. */
static int64_t status_bytes(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	size_t n = strlen(name);
	long long kilobytes = -1;
	char line[256];

	while (f && kilobytes < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, n) && sscanf(line + n, ": %lld kB", &kilobytes) != 1)
			kilobytes = -1;
	if (f)
		fclose(f);
	return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/* Prefers VmHWM, which covers this program alone. getrusage also counts the process before exec, a large launcher. */
int64_t hd_peak_bytes(void)
{
	int64_t bytes = status_bytes("VmHWM");
	struct rusage r;

	if (bytes >= 0)
		return bytes;
	getrusage(RUSAGE_SELF, &r);
	return (int64_t)r.ru_maxrss * 1024;
}

int64_t hd_private_bytes(void)
{
	int64_t anonymous = status_bytes("RssAnon"), file = status_bytes("RssFile");

	return anonymous >= 0 && file >= 0 ? anonymous + file : hd_peak_bytes();
}

/* Counts this rank's own arena and private memory. A proportional share of each page would not do: it would move from
 * rank to rank as they read. Arenas only grow, so their current size is their peak. */
int64_t hd_own_peak_bytes(void)
{
	int64_t shared = status_bytes("RssShmem"), taken = hd_comm_arena_taken(), most = hd_peak_bytes();
	int64_t private;

	if (shared < 0)
		return most;
	private = hd_private_bytes();
	most -= shared;
	return taken + (most > private ? most : private);
}

/* Returns the current memory, including pages of this process that other programs of the host have mapped. */
static double memory_now(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long long pages = 0;

	if (f && fscanf(f, "%*d %lld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Uses MB as the smallest unit: smaller amounts of a step's memory are never of interest. */
static struct hd_human memory_text(double bytes)
{
	struct hd_human h = hd_human_bytes(bytes);

	if (bytes < 1e6)
		snprintf(h.text, sizeof(h.text), "%.1f MB", bytes / 1e6);
	return h;
}

void hd_show_open(struct hd_show *s, struct hd_job *j, int64_t steps)
{
	s->j = j;
	s->steps = steps;
	s->every = j->log.every;
	s->prints = j->world.rank == 0;
	s->terminal = s->prints && hd_launch_terminal();
}

/* Returns what a step's share is a fraction of. */
static const char *basis(const struct hd_job *j)
{
	return hd_device_in_host(j->device) ? "matmul rate" : "peak (MFU)";
}

void hd_show_model(const struct hd_job *j)
{
	const struct hd_plan *p = hd_job_any_plan(j);

	printf("%s, %s parameters; %lld rank%s x %d thread%s", p->model.family->name,
	       hd_human_count((double)hd_plan_parameters(p)).text, (long long)p->ranks, hd_plural(p->ranks, "s"),
	       j->threads, hd_plural(j->threads, "s"));
	for (int a = 0; a < p->naxes; a++) {
		char *axis = hd_axis_text(p->axes[a]);

		printf("%s%s", a ? " x " : ": ", axis);
		free(axis);
	}
	printf("\n%lld sequence%s of %lld tokens a step: %lld micro-batch%s of %lld on each of %lld replica%s\n",
	       (long long)(p->batch * p->micros), hd_plural(p->batch * p->micros, "s"), (long long)p->model.seq,
	       (long long)p->micros, hd_plural(p->micros, "es"), (long long)p->micro_batch, (long long)p->replicas,
	       hd_plural(p->replicas, "s"));
}

void hd_show_begin(struct hd_show *s, const struct hd_progress *at)
{
	const char *why = hd_autotune_why(s->j);

	if (!s->prints)
		return;
	hd_show_model(s->j);
	if (why)
		printf("precision %s: %s (train.precision = auto)\n", s->j->compute_dtype ? "bf16" : "fp32", why);
	if (s->j->train.batch.steps)
		printf("the batch grows to that (global_batch_ramp = %s)\n",
		       hd_section_str(s->j->train.section, "global_batch_ramp"));
	printf("planned memory of this rank: %s", memory_text((double)hd_job_planned(s->j)).text);
	if (s->j->host_bytes)
		printf(", and %s of the host's", memory_text((double)s->j->host_bytes).text);
	printf("; ready after %.2f s", hd_seconds() - s->j->started);
	if (at->step)
		printf("; continuing after step %lld", (long long)at->step);
	printf("\nproducts: %.4g MFLOP a token; %s %.4g GFLOP/s a rank\n", s->j->flops_per_token / 1e6, basis(s->j),
	       s->j->rate / 1e9);
	fflush(stdout);
}

struct field {
	char text[HD_PROGRESS_FIELD];
	int rank; /* fields with the largest rank are left out first */
};
#define FIELDS HD_PROGRESS_FIELDS
#define HUGE_LOSS 1e6 /* from here on, all digits are of no interest */

static int wide(const struct field *f)
{
	int n = -2;

	for (int i = 0; i < FIELDS; i++)
		n += f[i].text[0] ? (int)strlen(f[i].text) + 2 : 0;
	return n;
}

/* Returns 0 if only indispensable fields are left. */
static int leave_out(struct field *f)
{
	int most = -1;

	for (int i = 0; i < FIELDS; i++)
		if (f[i].text[0] && f[i].rank > (most < 0 ? 0 : f[most].rank))
			most = i;
	if (most >= 0)
		f[most].text[0] = 0;
	return most >= 0;
}

void hd_progress_text(char *text, const struct hd_numbers *n, int64_t steps, const char *basis, int columns)
{
	struct field f[FIELDS] = {
		[2] = { .rank = 5 }, [3] = { .rank = 6 }, [5] = { .rank = 3 }, [6] = { .rank = 4 },
		[7] = { .rank = 8 }, [8] = { .rank = 7 }, [9] = { .rank = 9 }, [10] = { .rank = 2 }
	};
	int at = 0;

#define SAY(i, ...) snprintf(f[i].text, sizeof(f[i].text), __VA_ARGS__)
	SAY(0, "step %lld/%lld", (long long)n->step, (long long)steps);
	SAY(1, fabs(n->loss) < HUGE_LOSS ? "loss %.4f" : "loss %.4g", n->loss);
	SAY(2, fabs(n->norm) < HUGE_LOSS ? "norm %.3f" : "norm %.4g", n->norm);
	SAY(3, "lr %.2e", n->lr);
	SAY(5, "%s/step", hd_human_seconds(n->seconds).text);
	SAY(4, "%.0f tokens/s", n->tokens_per_second);
	SAY(6, "%.0f%% of %s", 100 * n->share, basis);
	SAY(7, "memory %s", memory_text(n->memory).text);
	SAY(8, "%s tokens", hd_human_count((double)n->total_tokens).text);
	SAY(9, "elapsed %s", hd_human_time(n->elapsed).text);
	SAY(10, "ETA %s", hd_human_time(n->left).text);
#undef SAY
	while (columns > 0 && wide(f) > columns && leave_out(f))
		;
	for (int i = 0; i < FIELDS; i++)
		if (f[i].text[0])
			at += snprintf(text + at, HD_PROGRESS_TEXT - (size_t)at, "%s%s", i ? "  " : "", f[i].text);
}

void hd_pace_step(struct hd_pace *p, double seconds)
{
	p->step = ++p->steps > 2 ? 0.9 * p->step + 0.1 * seconds : seconds;
}

void hd_pace_add(struct hd_pace *p, int kind, double seconds)
{
	p->seconds[kind] += seconds;
	p->times[kind]++;
}

double hd_pace_left(const struct hd_pace *p, int64_t steps, const int64_t due[HD_PACE_KINDS])
{
	double left = p->step * (double)steps;

	for (int k = 0; k < HD_PACE_KINDS; k++)
		if (p->times[k])
			left += p->seconds[k] / (double)p->times[k] * (double)due[k];
	return left;
}

int64_t hd_pace_due(int64_t every, int64_t from, int64_t last)
{
	if (last <= from)
		return 0;
	return every ? last / every - from / every + (last % every != 0) : 1;
}

/* Returns the time left. Work that is due after the current step is still to come. */
static double seconds_left(const struct hd_show *s, int64_t step)
{
	const struct hd_job *j = s->j;
	const int64_t due[HD_PACE_KINDS] = {
		[HD_PACE_EVALUATION] = hd_pace_due(j->train.eval_every, step - 1, s->steps),
		[HD_PACE_SAVE] = hd_pace_due(j->checkpoint.every, step - 1, s->steps),
		[HD_PACE_SAMPLE] = hd_pace_due(j->log.sample_every, step - 1, s->steps),
	};

	return hd_pace_left(&s->pace, s->steps - step, due);
}

void hd_show_step(struct hd_show *s, struct hd_numbers *n)
{
	char text[HD_PROGRESS_TEXT];

	hd_pace_step(&s->pace, n->seconds);
	n->left = seconds_left(s, n->step);
	n->elapsed = hd_seconds() - s->j->started;
	n->memory = memory_now();
	if (!s->prints || (!s->terminal && n->step % s->every && n->step != s->steps))
		return;
	hd_progress_text(text, n, s->steps, basis(s->j), s->terminal ? hd_launch_columns() - 1 : 0);
	printf("%s%s%s", s->terminal ? "\r" : "", text, s->terminal ? "\033[K" : "\n");
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

void hd_show_eval(struct hd_show *s, int64_t step, double loss, int64_t tokens, json_t *of_sets)
{
	const char *key;
	json_t *one;

	if (!s->prints)
		return;
	hd_show_line(s);
	printf("step %lld  valid_loss %.4f  (perplexity %.3f, %lld tokens)", (long long)step, loss, exp(loss),
	       (long long)tokens);
	json_object_foreach(of_sets, key, one)
		printf("  %s %.4f", strchr(key, '.') + 1, json_number_value(one));
	putchar('\n');
	fflush(stdout);
}

void hd_show_end(struct hd_show *s)
{
	double peak = hd_comm_max((double)hd_peak_bytes()), own = hd_comm_max((double)hd_own_peak_bytes());

	if (s->prints)
		printf("memory: planned %s", memory_text((double)hd_job_planned(s->j)).text);
	if (s->prints && s->j->world.local_size > 1)
		printf(", without pages of other ranks %s", memory_text(own).text);
	if (s->prints)
		printf(", the process' high-water mark %s\n", memory_text(peak).text);
	fflush(stdout);
}
