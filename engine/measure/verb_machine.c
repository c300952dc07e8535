/* SPDX-License-Identifier: Apache-2.0
 * The command heddle machine.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include "engine/device/processor.h"
#include "engine/file/atomic_file.h"
#include "engine/measure/measure.h"
#include "engine/plugin/device_load.h"
#include "engine/process/cores.h"
#include "engine/train/progress.h"
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT 50.0 /* seconds after which no further size is begun */

/* This command has no INI: hd_start takes the defaults of [train] from this one. */
static const char nothing[] = "[model]\n[data]\ntrain = none\n[train]\nseq = 1\nglobal_batch = 1\nsteps = 1\n";

/* Copies a GPU's name out of "cuda: GPU 0, its name (9.0), ...": the text between the first comma and the
 * parenthesis. */
static void gpu(const struct hd_device_ops *d, char *to, size_t room)
{
	char *said = d->describe(), *name = strstr(said, ", ");

	snprintf(to, room, "%s", name ? name + 2 : said);
	to[strcspn(to, "(;#")] = 0;
	while (*to && to[strlen(to) - 1] == ' ')
		to[strlen(to) - 1] = 0;
	free(said);
}

/* Returns the cores of this host that its ranks may use, whether they share them or each has its own. */
static int64_t cores(const struct hd_job *j)
{
	int64_t most = sysconf(_SC_NPROCESSORS_ONLN), all = (int64_t)j->world.local_size * j->threads, mine;
	int allowed = hd_cores_quota();
	cpu_set_t mask;

	most = allowed && allowed < most ? allowed : most;
	if (sched_getaffinity(0, sizeof(mask), &mask))
		return all < most ? all : most;
	mine = CPU_COUNT(&mask) < most ? CPU_COUNT(&mask) : most;
	if (mine >= all || mine != j->threads)
		return mine;
	return all < most ? all : most;
}

static void about(const struct hd_measuring *m)
{
	struct hd_rates *r = m->rates;
	const struct hd_job *j = m->j;
	time_t now = time(NULL);
	struct tm t;

	if (hd_device_in_host(j->device))
		hd_processor_name("", r->processor, sizeof(r->processor));
	else
		gpu(j->device, r->processor, sizeof(r->processor));
	snprintf(r->build, sizeof(r->build), "heddle %s, gcc %s", PACKAGE_VERSION, __VERSION__);
	strftime(r->date, sizeof(r->date), "%Y-%m-%d %H:%M", localtime_r(&now, &t));
	snprintf(r->device, sizeof(r->device), "%s", j->device->name);
	r->cores = hd_device_in_host(j->device) ? cores(j) : 1;
	r->hosts = j->world.hosts;
	r->ranks = j->world.size;
	r->launch = r->exchange = r->turn = r->step = -1;
	r->threads = hd_device_in_host(j->device) ? j->threads : 1;
	r->quick = m->quick;
}

static int open_device(struct hd_job *j, struct hd_err *err)
{
	const struct hd_device_ops *cuda = NULL;
	struct hd_err why = { 0 };

	j->device = hd_device_cpu();
	if (hd_device_gpu_there())
		hd_device_cuda(&cuda, &why);
	hd_comm_share_devices(cuda);
	if (cuda && cuda->open(j->threads, &why) >= 0)
		j->device = cuda;
	if (hd_device_in_host(j->device))
		HD_TRY(j->device->open(j->threads, err));
	if (why.code)
		hd_log(HD_LOG_INFO, "device cpu: %s", why.text);
	return HD_OK;
}

/* Keeps only the best rate for each factor of four in size. */
static void keep_best(struct hd_rate_points *p)
{
	struct hd_rate_points all = *p;

	*p = (struct hd_rate_points){ NULL, 0, 0 };
	for (double least = 16384; least < 16e9; least *= 4) {
		struct hd_rate_point best = { .at = 2 * least };

		for (size_t i = 0; i < all.n; i++)
			if (all.v[i].at >= least && all.v[i].at < 4 * least && all.v[i].rate > best.rate)
				best.rate = all.v[i].rate;
		if (best.rate > 0)
			hd_rates_add(p, best);
	}
	free(all.v);
}

static void measure_memory(const struct hd_measuring *m, struct hd_rate_points *p)
{
	int64_t largest = m->quick ? (int64_t)1 << 20 : (int64_t)64 << 20; /* of an array */

	if (!hd_device_in_host(m->j->device)) {
		keep_best(p);
		return;
	}
	for (int64_t bytes = 16384; bytes <= largest; bytes *= 4) {
		double rate;

		hd_comm_barrier();
		rate = hd_bench_memory_rate(bytes);
		if (rate > 0)
			hd_rates_add(p, (struct hd_rate_point){ .at = 3.0 * (double)bytes, .rate = rate });
	}
}

static void settle(struct hd_rates *r)
{
	for (int t = 0; t < HD_RATE_TYPES; t++) {
		for (int k = 0; k < HD_PRODUCT_KINDS; k++)
			hd_rates_settle(&r->products[k][t]);
		for (size_t i = 0; i < r->n; i++)
			hd_rates_settle(&r->kernels[i].of[t]);
	}
}

static int print(const struct hd_measuring *m, const struct hd_rate_points *memory,
		 const struct hd_rate_points *network, const char *path, struct hd_err *err)
{
	size_t bytes = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &bytes);

	hd_machine_print(m, memory, network, f);
	fclose(f);
	if (path)
		hd_file_write(path, text, err);
	else
		fputs(text, stdout);
	free(text);
	return err->code;
}

/* Warns if the three times, which should be equal, differ. Rates of ranks with several threads then belong to one of
 * them, or to a mixture. */
static void warn_if_moved(const double *exchange)
{
	double least = INFINITY, most = 0;

	for (int i = 0; i < 3; i++) {
		least = exchange[i] > 0 ? fmin(least, exchange[i]) : least;
		most = fmax(most, exchange[i]);
	}
	if (hd_bench_cores_moved(least, most))
		hd_log(HD_LOG_WARN,
		       "machine: handing a cache line from one core to another took %.0f ns at one time and %.0f ns "
		       "at another. The host has moved this machine's cores, so steps of ranks with several threads "
		       "vary. Measure again",
		       1e9 * least, 1e9 * most);
}

static int measure(struct hd_measuring *m, const char *path, struct hd_err *err)
{
	double exchange[3];
	struct hd_rate_points memory = { NULL, 0, 0 }, network = { NULL, 0, 0 };
	int rc;

	m->memory = &memory;
	open_device(m->j, err);
	HD_TRY(hd_comm_agree(err));
	about(m);
	exchange[0] = hd_bench_exchange(m->j);
	rc = hd_measure_programs(m, err); /* first, while nothing else has taken memory */
	settle(m->rates);
	if (rc >= 0)
		rc = hd_measure_team(m, err);
	if (rc >= 0)
		rc = hd_measure_links(m, &network, err);
	if (rc >= 0)
		rc = hd_measure_shared_cores(m, err);
	measure_memory(m, &memory);
	if (rc >= 0) {
		exchange[2] = hd_bench_exchange(m->j);
		if (m->rates->exchange <= 0)
			m->rates->exchange = exchange[2];
		exchange[1] = m->rates->exchange;
	}
	if (rc >= 0 && m->j->world.rank == 0) {
		warn_if_moved(exchange);
		hd_rates_warn_of_falls(m->rates, &memory);
		print(m, &memory, &network, path, err);
	}
	free(memory.v), free(network.v);
	return hd_comm_agree(err);
}

int hd_verb_machine(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };
	struct hd_measuring m = { &j, hd_alloc(sizeof(*m.rates)), c->started + LIMIT, hd_cli_has(c, "quick") };
	const char *out = hd_cli_str(c, "out", NULL);
	int rc;

	hd_conf_parse("machine", nothing, NULL, 0, &conf, &err);
	if (out && !err.code)
		hd_path_writable(out, 0, &err);
	if (hd_start(c, &j, conf, &err) >= 0)
		measure(&m, out, &err);
	rc = hd_finish(c, &j, &err);
	j.conf = conf;
	hd_job_close(&j);
	hd_rates_destroy(m.rates);
	return rc;
}
