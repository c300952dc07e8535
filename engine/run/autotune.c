/* SPDX-License-Identifier: Apache-2.0
 * Makes the choices that depend on timing, and caches them. The cache is one text file per machine and thread count,
 * with lines of "key value". It is written to a temporary file and renamed. If it cannot be written, only time is
 * lost.
 */
#include <config.h>
#include "engine/run/autotune.h"
#include "engine/file/atomic_file.h"
#include "engine/device/processor.h"
#include <stdio.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *gather(void *ctx, const char *wanted)
{
	struct hd_job *j = ctx;
	char **all = hd_comm_gather_text(wanted), *joined = NULL;

	for (int r = 0; all && r < j->world.size; r++) {
		hd_append(&joined, "%s", all[r]);
		free(all[r]);
	}
	free(all);
	return joined;
}

static char *bcast(void *ctx, const char *text)
{
	(void)ctx;
	return hd_comm_bcast_text(text ? text : "", 0);
}

static char *cache_path(const struct hd_job *j)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	unsigned long long processor = hd_processor_hash(""); /* a different processor has different rates */

	if (base && *base)
		return hd_format("%s/heddle/%016llx-%d", base, processor, j->threads);
	return hd_format("%s/.cache/heddle/%016llx-%d", home && *home ? home : "/tmp", processor, j->threads);
}

static char *rate_key_here(const struct hd_job *j)
{
	return hd_format("rate.%s.%d/%ld ", j->compute_dtype ? "bf16" : "fp32", j->world.local_size,
			 sysconf(_SC_NPROCESSORS_ONLN));
}

/* Returns the key of the line with the rate of large products in the run's precision. The ranks of a host share the
 * cores and the memory's bandwidth, so the key contains their number. It is that of rank 0's host, since hosts may
 * differ and all ranks must find the rate or none. */
static char *rate_key(const struct hd_job *j)
{
	char *mine = rate_key_here(j), *all = hd_comm_bcast_text(mine, 0);

	free(mine);
	return all;
}

static double rate_in(const char *text, const char *key)
{
	const char *s = strstr(text, key);

	return s && (s == text || s[-1] == '\n') ? strtod(s + strlen(key), NULL) : 0;
}

/* Returns whether a line only counts something in this run, and so is not a choice. */
static int is_count(const char *line)
{
	return !strncmp(line, "einsum.", 7);
}

/* Returns the cached text, with the given rate if the cache has none or a lower one. Rate 0 changes nothing. */
static char *with_rate(const char *cached, const char *key, double rate)
{
	double known = rate_in(cached, key);
	const char *at = known > 0 ? strstr(cached, key) : NULL, *line_end = at ? strchr(at, '\n') : NULL;

	if (!(rate > known))
		return hd_strdup(cached);
	return hd_format("%s%.9g\n%.*s%s", key, rate, at ? (int)(at - cached) : 0, cached,
			 at ? (line_end ? line_end + 1 : "") : cached);
}

/* Returns the same text, plus the lines of `picks` that are new. */
static char *with_picks(const char *cached, const char *key, double rate, const char *picks)
{
	char *text = with_rate(cached, key, rate);

	for (const char *s = picks; *s;) {
		size_t n = strcspn(s, "\n");
		char *line = hd_format("%.*s\n", (int)n, s);

		if (!is_count(line) && !strstr(text, line))
			hd_append(&text, "%s", line);
		free(line);
		s += n + (s[n] == '\n');
	}
	return text;
}

static void save(const char *path, const char *text)
{
	struct hd_err ignored = { 0 };
	char *dir = hd_strdup(path);

	*strrchr(dir, '/') = 0;
	if (hd_dir_make(dir, &ignored) >= 0)
		hd_file_write(path, text, &ignored);
	free(dir);
}

static int is_auto(const struct hd_job *j)
{
	return j->train.precision == HD_PRECISION_AUTO;
}

#define CHOSEN "precision.auto "

/* Returns whether bf16 is chosen: by the processor's instructions if deterministic, else by measured rates. */
static int prefers_low(const struct hd_job *j)
{
	if (j->train.deterministic)
		return !j->device->slow || !j->device->slow(HD_DTYPE_BF16);
	return j->device->matmul_rate(HD_DTYPE_BF16) > j->device->matmul_rate(HD_DTYPE_F32);
}

const char *hd_autotune_why(const struct hd_job *j)
{
	if (!is_auto(j))
		return NULL;
	if (!hd_device_in_host(j->device))
		return "as on every GPU";
	if (!j->train.deterministic)
		return "measured as the faster";
	return j->compute_dtype ? "the processor has instructions for it"
				: "the processor has no instructions for bf16";
}

void hd_autotune_precision(struct hd_job *j, const char *known)
{
	struct hd_err ignored = { 0 };
	char *path, *cached, *text, *all;
	const char *s;

	if (!is_auto(j) || !hd_device_in_host(j->device))
		return;
	path = cache_path(j);
	cached = j->world.rank == 0 && !j->train.deterministic ? hd_file_read(path, NULL, &ignored) : NULL;
	text = hd_format("%s\n%s", known ? known : "", cached ? cached : "");
	if (j->world.rank == 0 && !strstr(text, "\n" CHOSEN) && strncmp(text, CHOSEN, strlen(CHOSEN))) {
		free(text);
		text = hd_format(CHOSEN "%s\n", prefers_low(j) ? "bf16" : "fp32");
	}
	all = hd_comm_bcast_text(text, 0);
	s = strstr(all, CHOSEN);
	j->compute_dtype = s && !strncmp(s + strlen(CHOSEN), "bf16", 4) ? HD_DTYPE_BF16 : 0;
	free(path), free(cached), free(text), free(all);
}

/* Adds the precision, which was chosen before any product was planned. */
static char *all_picks(struct hd_job *j, char *picks)
{
	char *text;

	if (!is_auto(j))
		return picks;
	text = hd_format("%s" CHOSEN "%s\n", picks ? picks : "", j->compute_dtype ? "bf16" : "fp32");
	free(picks);
	return text;
}

/* Returns the FLOP/s of large products. All ranks measure at once, because that is how they will compute. */
static double rate_of(const struct hd_job *j, const char *known, const char *key)
{
	double rate = rate_in(known, key);

	if (!hd_device_in_host(j->device)) /* the manufacturer's figure, or a measurement of this GPU alone */
		return j->device->peak ? j->device->peak(hd_job_dtype(j)) : j->device->matmul_rate(hd_job_dtype(j));
	if (rate > 0)
		return rate;
	hd_comm_barrier();
	return hd_comm_sum(j->device->matmul_rate(hd_job_dtype(j))) / j->world.size;
}

/* Without this threshold the C library keeps freed buffers, up to twice the largest so far. Products are timed with
 * large buffers, and what was kept of them made the peak memory of one layout vary by 25 MB. */
static void keep_no_large_buffers(void)
{
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

/* Returns freed memory to the system. The buffers that products were timed with may still belong to the process, and a
 * step needs its own memory in addition. */
static void release_freed_memory(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

int hd_autotune(struct hd_job *j, const char *known, struct hd_err *err)
{
	struct hd_exchange x = { j, gather, bcast };
	struct hd_err ignored = { 0 };
	char *path = cache_path(j), *key = rate_key(j), *cached = NULL, *all, *base;

	keep_no_large_buffers();
	if (j->world.rank == 0)
		cached = hd_file_read(path, NULL, &ignored);
	base = hd_format("%s%s", known ? known : "", cached ? cached : "");
	all = hd_comm_bcast_text(base, 0);
	j->tuned = j->device->autotune(all, &x);
	if (hd_device_in_host(j->device))
		j->tuned = all_picks(j, j->tuned);
	j->rate = rate_of(j, all, key);
	release_freed_memory();
	if (j->world.rank == 0) {
		char *text = with_picks(cached ? cached : "", key, hd_device_in_host(j->device) ? j->rate : 0,
					j->tuned && !j->train.deterministic ? j->tuned : "");

		if (strcmp(text, cached ? cached : ""))
			save(path, text);
		free(text);
	}
	free(path), free(key), free(cached), free(all), free(base);
	return err->code;
}

void hd_autotune_exceeded(const struct hd_job *j, double share)
{
	struct hd_err ignored = { 0 };
	char *path, *key, *cached, *text;

	share = hd_comm_max(share);
	if (!hd_device_in_host(j->device) || share <= 1 || j->world.rank)
		return;
	path = cache_path(j), key = rate_key_here(j);
	cached = hd_file_read(path, NULL, &ignored);
	text = with_rate(cached ? cached : "", key, j->rate * share);
	save(path, text);
	hd_log(HD_LOG_INFO,
	       "a step reached %.0f%% of the matmul rate of %.4g GFLOP/s, so other work occupied the cores when that "
	       "was measured. The next run uses %.4g GFLOP/s",
	       100 * share, j->rate / 1e9, j->rate * share / 1e9);
	free(path), free(key), free(cached), free(text);
}
