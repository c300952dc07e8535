/* SPDX-License-Identifier: Apache-2.0
 * Events are kept in memory while the traced steps run and written by rank 0 at the end.  Per rank one row of units
 * (F3 B2 W1, with the micro-batch), one of kernels, one of communication.
 */
#include <config.h>
#include "engine/trace.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hd_trace_step(struct hd_program *g, struct hd_section *log, int64_t step)
{
	long long from = 0, to = 0;
	int on = hd_section_str(log, "trace")[0] && sscanf(hd_section_str(log, "trace_steps"), "%lld-%lld", &from, &to) >= 1;

	hd_program_trace(g, on && step >= from && step <= (to ? to : from));
}

static char unit_letter(uint32_t kind)
{
	return kind == HD_F ? 'F' : kind == HD_B ? 'B' : kind == HD_W ? 'W' : kind == HD_G ? 'G' : kind == HD_S ? 'S' : 'U';
}

static void event(FILE *f, const char *name, int rank, int row, double begin, double end, double zero, int *first)
{
	fprintf(f, "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}", *first ? "" : ",\n", name,
		rank, row, 1e6 * (begin - zero), 1e6 * (end - begin));
	*first = 0;
}

/* Consecutive events of one unit are one bar. */
static void rows(FILE *f, const struct hd_program *g, int rank, double zero, int *first)
{
	char name[48];

	for (size_t i = 0; i < g->ntrace; i++) {
		const struct trace_event *e = &g->trace[i];
		size_t k = i;

		event(f, e->name, rank, e->comm ? 2 : 1, e->begin, e->end, zero, first);
		if (i && !memcmp(&g->trace[i - 1].unit, &e->unit, sizeof(e->unit)))
			continue;
		while (k + 1 < g->ntrace && !memcmp(&g->trace[k + 1].unit, &e->unit, sizeof(e->unit)))
			k++;
		if (e->unit.micro >= 0)
			snprintf(name, sizeof(name), "%c%d%s%d", unit_letter(e->unit.kind), e->unit.micro,
				 g->plan->chunks > 1 ? " chunk " : " ", e->unit.chunk);
		else
			snprintf(name, sizeof(name), "%c", unit_letter(e->unit.kind));
		if (e->unit.micro >= 0 && g->plan->chunks == 1)
			name[strcspn(name, " ")] = 0;
		event(f, name, rank, 0, e->begin, g->trace[k].end, zero, first);
	}
}

/* Before the first step: a run must not find out after its last one. */
int hd_trace_check(struct hd_section *log, struct hd_err *err)
{
	const char *path = hd_section_str(log, "trace");
	FILE *f = *path ? fopen(path, "ae") : NULL;

	if (*path && !f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	if (f)
		fclose(f);
	return HD_OK;
}

int hd_trace_write(struct hd_job *j, struct hd_program *g, struct hd_err *err)
{
	const char *path = hd_section_str(j->log, "trace");
	char *text = NULL, **all;
	size_t bytes = 0;
	FILE *f;
	int first = 1;

	if (!*path)
		return HD_OK;
	f = open_memstream(&text, &bytes);
	rows(f, g, j->world.rank, j->started, &first);
	fclose(f);
	all = hd_comm_gather_text(text);
	free(text);
	if (!all)
		return hd_comm_agree(err);
	f = fopen(path, "w");
	if (!f)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	else
		fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
	for (int r = 0; r < j->world.size; r++) {
		if (f)
			fprintf(f, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}%s%s%s", r, r,
				all[r][0] ? ",\n" : "", all[r], r + 1 < j->world.size ? ",\n" : "\n");
		free(all[r]);
	}
	if (f) {
		fprintf(f, "]}\n");
		fclose(f);
	}
	free(all);
	return hd_comm_agree(err);
}
