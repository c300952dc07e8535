/* SPDX-License-Identifier: Apache-2.0
 * Prints runs of lines that repeat from layer to layer only once. A run is all adjacent lines of one unit and block.
 * Two adjacent runs repeat if their lines are equal once layer numbers are taken relative to their own layer.
 */
#include <config.h>
#include "engine/report/fold.h"
#include "engine/base/err.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hd_fold_add(struct hd_fold *f, const char *unit, const char *block, char *before, char *after)
{
	f->line = hd_grow(f->line, f->n, &f->cap, sizeof(*f->line));
	f->line[f->n++] = (struct hd_fold_line){ before, after, block, unit };
}

/* Returns the number of "layer 3", or -1 if the block is not a layer. */
static long layer_of(const struct hd_fold_line *l)
{
	char *end;
	long k;

	if (strncmp(l->block, "layer ", 6))
		return -1;
	k = strtol(l->block + 6, &end, 10);
	return *end ? -1 : k;
}

/* Returns whether a number is that of a layer: "layer 3" or "h.3.". Other numbers
 * (counts, coordinates) are compared as they are. */
static int is_layers(const char *text, size_t at, size_t end)
{
	return (at >= 6 && !strncmp(text + at - 6, "layer ", 6)) || (at && text[at - 1] == '.' && text[end] == '.');
}

static char *relative(const char *text, long layer)
{
	char *out = hd_strdup("");
	size_t at = 0;

	while (text[at]) {
		size_t from = at + strcspn(text + at, "0123456789"), to = from + strspn(text + from, "0123456789");

		hd_append(&out, "%.*s", (int)(from - at), text + at);
		if (to > from && is_layers(text, from, to))
			hd_append(&out, "<%ld>", strtol(text + from, NULL, 10) - layer);
		else
			hd_append(&out, "%.*s", (int)(to - from), text + from);
		at = to;
	}
	return out;
}

/* Returns the end of a run. A run is one block in forward, or in all other units: a layer's
 * backward and weight gradients are in one run. */
static size_t run_end(const struct hd_fold *f, size_t from)
{
	int forward = !strcmp(f->line[from].unit, "forward");
	size_t i = from;

	while (i < f->n && !strcmp(f->line[i].block, f->line[from].block) &&
	       forward == !strcmp(f->line[i].unit, "forward"))
		i++;
	return i;
}

static int same_line(const struct hd_fold_line *a, const struct hd_fold_line *b)
{
	char *x = relative(a->after, layer_of(a)), *y = relative(b->after, layer_of(b));
	int same = !strcmp(a->unit, b->unit) && !strcmp(a->before, b->before) && !strcmp(x, y);

	free(x);
	free(y);
	return same;
}

/* Returns whether the run [b, be) repeats [a, ae) for the next layer. */
static int continues(const struct hd_fold *f, size_t a, size_t ae, size_t b, size_t be, long step)
{
	if (be - b != ae - a || layer_of(&f->line[b]) != layer_of(&f->line[a]) + step)
		return 0;
	for (size_t i = 0; i < ae - a; i++)
		if (!same_line(&f->line[a + i], &f->line[b + i]))
			return 0;
	return 1;
}

static void print_run(const struct hd_fold *f, size_t from, size_t to, long last)
{
	for (size_t i = from; i < to; i++) {
		const struct hd_fold_line *l = &f->line[i];
		char *name = layer_of(l) == last || last < 0 ? hd_strdup(l->block)
							     : hd_format("layer %ld-%ld", layer_of(l), last);

		printf("%s%-10s%s", l->before, name, l->after);
		free(name);
	}
}

void hd_fold_print(struct hd_fold *f, int folded)
{
	for (size_t a = 0, next; a < f->n; a = next) {
		size_t ae = run_end(f, a), b = ae, be;
		long last = layer_of(&f->line[a]), step = 0;

		while (folded && last >= 0 && b < f->n) {
			long at = layer_of(&f->line[b]);

			be = run_end(f, b);
			step = step ? step : at - last;
			if ((step != 1 && step != -1) || at != last + step ||
			    !continues(f, a, ae, b, be, at - layer_of(&f->line[a])))
				break;
			last = at;
			b = be;
		}
		print_run(f, a, ae, last);
		next = b;
	}
	for (size_t i = 0; i < f->n; i++) {
		free(f->line[i].before);
		free(f->line[i].after);
	}
	free(f->line);
	memset(f, 0, sizeof(*f));
}
