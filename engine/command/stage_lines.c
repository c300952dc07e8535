/* SPDX-License-Identifier: Apache-2.0
 * Prints the memory of a layout's stages: each stage exactly, or stages with equal sizes in one line.
 */
#include <config.h>
#include "engine/command/stage_lines.h"
#include "engine/human/human.h"
#include "engine/program/program.h"
#include <stdio.h>
#include <string.h>

static int64_t buffers(const struct hd_stage_line *s)
{
	return s->communicators * HD_COMMUNICATOR_BYTES;
}

int64_t hd_stage_line_bytes(const struct hd_stage_line *s)
{
	return s->persistent + s->transient + s->snapshot + s->scratch + buffers(s);
}

/* Returns 1 if the ranks of two stages store equal amounts. Memory within a step is not compared: it differs, since
 * stages have more or fewer micro-batches in flight. */
static int alike(const struct hd_stage_line *a, const struct hd_stage_line *b)
{
	return a->blocks == b->blocks && a->stage_parameters == b->stage_parameters && a->parameters == b->parameters &&
	       a->persistent == b->persistent && a->snapshot == b->snapshot && a->host == b->host &&
	       a->scratch == b->scratch && a->communicators == b->communicators;
}

static void print_blocks(const struct hd_plan *p, int64_t coord)
{
	for (size_t b = 0; b < p->nblocks; b++)
		if (p->blocks[b].coord == coord)
			printf(" %s", p->blocks[b].name);
}

static void print_exactly(const struct hd_plan *p, const struct hd_stage_line *s, int64_t coord)
{
	printf("rank %lld", (long long)s->rank);
	if (p->stages) {
		printf(" (stage %lld:", (long long)coord);
		print_blocks(p, coord);
		printf("; %lld parameters)", (long long)s->stage_parameters);
	}
	printf(": %lld parameters, memory %.1f MB (parameters and state %.1f, within a step %.1f",
	       (long long)s->parameters, (double)hd_stage_line_bytes(s) / 1e6, (double)s->persistent / 1e6,
	       (double)s->transient / 1e6);
	if (s->snapshot)
		printf(", copy during a save %.1f", (double)s->snapshot / 1e6);
	if (s->scratch)
		printf(", scratch of kernels %.1f", (double)s->scratch / 1e6);
	if (s->communicators)
		printf(", %lld NCCL communicator%s about %.0f", (long long)s->communicators,
		       hd_plural(s->communicators, "s"), (double)buffers(s) / 1e6);
	printf(")");
	if (s->host)
		printf(", in host memory %.1f MB", (double)s->host / 1e6);
	printf("\n");
}

/* Prints "72.8 GB" or "49.1 GB to 72.8 GB". */
static void print_between(int64_t least, int64_t most)
{
	struct hd_human a = hd_human_bytes((double)least), b = hd_human_bytes((double)most);

	printf("%s", a.text);
	if (strcmp(a.text, b.text))
		printf(" to %s", b.text);
}

static void print_ranks(const struct hd_plan *p, const struct hd_stage_line *s, int64_t from, int64_t to)
{
	const char *each = "";

	if (to - from > 1) {
		printf("ranks %lld to %lld (stages %lld to %lld, %lld block%s each", (long long)s[from].rank,
		       (long long)s[to - 1].rank, (long long)from, (long long)to - 1, (long long)s[from].blocks,
		       hd_plural(s[from].blocks, "s"));
		each = " each";
	} else {
		printf("rank %lld", (long long)s[from].rank);
		if (!p->stages)
			return;
		printf(" (stage %lld:", (long long)from);
		print_blocks(p, from);
	}
	printf("; %s parameters%s)", hd_human_count((double)s[from].stage_parameters).text, each);
}

/* Prints one line for the equal stages from, from + 1, ..., to - 1. */
static void print_alike(const struct hd_plan *p, const struct hd_stage_line *s, int64_t from, int64_t to)
{
	int64_t least = s[from].transient, most = least, state = s[from].persistent;
	int64_t rest = hd_stage_line_bytes(&s[from]) - least;

	for (int64_t i = from; i < to; i++) {
		least = s[i].transient < least ? s[i].transient : least;
		most = s[i].transient > most ? s[i].transient : most;
	}
	print_ranks(p, s, from, to);
	printf(": %s parameters, memory ", hd_human_count((double)s[from].parameters).text);
	print_between(rest + least, rest + most);
	printf(" (parameters and state %s, within a step ", hd_human_bytes((double)state).text);
	print_between(least, most);
	if (s[from].snapshot)
		printf(", copy during a save %s", hd_human_bytes((double)s[from].snapshot).text);
	if (s[from].scratch)
		printf(", scratch of kernels %s", hd_human_bytes((double)s[from].scratch).text);
	if (s[from].communicators)
		printf(", %lld NCCL communicator%s about %s", (long long)s[from].communicators,
		       hd_plural(s[from].communicators, "s"), hd_human_bytes((double)buffers(&s[from])).text);
	printf(")");
	if (s[from].host)
		printf(", in host memory %s", hd_human_bytes((double)s[from].host).text);
	printf("\n");
}

void hd_stage_lines_print(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n, int exact)
{
	for (int64_t from = 0, to; from < n; from = to) {
		to = from + 1;
		while (!exact && to < n && alike(&s[from], &s[to]))
			to++;
		if (exact)
			print_exactly(p, &s[from], from);
		else
			print_alike(p, s, from, to);
	}
}

static json_t *one_json(const struct hd_plan *p, const struct hd_stage_line *s, int64_t coord)
{
	json_t *blocks = json_array();

	for (size_t b = 0; b < p->nblocks; b++)
		if (p->blocks[b].coord == coord)
			json_array_append_new(blocks, json_string(p->blocks[b].name));
	return json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", (json_int_t)coord,
			 "rank", (json_int_t)s->rank, "blocks", blocks, "stage_parameters",
			 (json_int_t)s->stage_parameters, "parameters", (json_int_t)s->parameters, "memory_bytes",
			 (json_int_t)hd_stage_line_bytes(s), "persistent_bytes", (json_int_t)s->persistent,
			 "transient_bytes", (json_int_t)s->transient, "snapshot_bytes", (json_int_t)s->snapshot,
			 "scratch_bytes", (json_int_t)s->scratch, "host_bytes", (json_int_t)s->host,
			 "communicator_bytes", (json_int_t)buffers(s));
}

json_t *hd_stage_lines_json(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n)
{
	json_t *all = json_array();

	for (int64_t i = 0; i < n; i++)
		json_array_append_new(all, one_json(p, &s[i], i));
	return all;
}
