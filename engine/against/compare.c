/* SPDX-License-Identifier: Apache-2.0
 * Compares two runs, and their difference with what rounding explains.
 */
#include <config.h>
#include "engine/against/compare.h"
#include "engine/tensorfile/tensorfile.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 8      /* a difference may be this many times one that rounding alone made on one rank */
#define MOST_SEEN 0.1 /* a larger difference is not rounding: a model that rounding moves so far cannot be compared */

struct worst_difference { /* the error over its bound, the error, and its object */
	double off, error;
	char what[300];
};

double hd_comparison_bound(const struct hd_comparison *c, int step)
{
	double one = c->bf16 ? 2 * 0x1p-16 * 20 * (double)(c->layers + 1) : 0x1p-48 * (double)c->terms / 3;

	return sqrt(one * (1 + 4 * step));
}

static void worse(struct worst_difference *w, double error, double bound, const char *fmt, ...) HD_PRINTF(4, 5);
static void worse(struct worst_difference *w, double error, double bound, const char *fmt, ...)
{
	double off = isnan(error) ? INFINITY : error / bound;
	va_list v;

	if (off <= w->off && *w->what)
		return;
	w->off = off;
	w->error = error;
	va_start(v, fmt);
	vsnprintf(w->what, sizeof(w->what), fmt, v);
	va_end(v);
}

/* -- losses and norms -------------------------------------------------------------------------------------- */
int hd_losses_read(const char *dir, const char *name, struct hd_losses *x, struct hd_err *err)
{
	char *path = hd_format("%s/%s.jsonl", dir, name), line[65536];
	FILE *f = fopen(path, "r");

	x->n = 0;
	while (f && fgets(line, sizeof(line), f) && x->n < HD_MOST_STEPS) {
		json_t *o = json_loads(line, 0, NULL), *loss = json_object_get(o, "loss");

		if (json_is_number(loss)) {
			x->step[x->n] = (int)json_integer_value(json_object_get(o, "step"));
			x->loss[x->n] = json_number_value(loss);
			x->norm[x->n++] = json_number_value(json_object_get(o, "grad_norm"));
		}
		json_decref(o);
	}
	if (f)
		fclose(f);
	if (!x->n)
		hd_err_set(err, HD_EIO, "%s: no step was written", path);
	free(path);
	return err->code;
}

/* Returns off / whole. Two values that are both 0 do not differ. */
static double part_of(double off, double whole)
{
	return off == 0 ? 0 : off / whole;
}

static double off_by(double a, double one)
{
	return part_of(fabs(a - one), fabs(one));
}

/* Returns the bound, raised if rounding alone moves one rank by `seen`, since a bound that it exceeds shows nothing. It
 * is raised to MARGIN times `seen`, at most to MOST_SEEN. */
static double at_least(double bound, double seen)
{
	return seen > 0 ? fmax(bound, fmin(MARGIN * seen, MOST_SEEN)) : bound;
}

static int compare_numbers(const struct hd_comparison *c, const char *dir, struct worst_difference *w,
			   struct hd_err *err)
{
	struct hd_losses one, many, again;

	HD_TRY(hd_losses_read(dir, "one", &one, err));
	HD_TRY(hd_losses_read(dir, "many", &many, err));
	again = one;
	if (c->again)
		HD_TRY(hd_losses_read(dir, "again", &again, err));
	if (one.n != many.n || one.n != again.n)
		return hd_err_set(err, HD_EIO, "one rank took %d steps, but the layout took %d", one.n, many.n);
	for (int i = 0; i < one.n; i++) {
		double bound = hd_comparison_bound(c, i);

		worse(w, off_by(many.loss[i], one.loss[i]),
		      at_least(bound / (c->bf16 ? sqrt((double)c->tokens) : 1), off_by(again.loss[i], one.loss[i])),
		      "loss of step %d", i + 1);
		worse(w, off_by(many.norm[i], one.norm[i]), at_least(bound, off_by(again.norm[i], one.norm[i])),
		      "gradient norm of step %d", i + 1);
	}
	return HD_OK;
}

/* -- gradients --------------------------------------------------------------------------------------------- */
static float *load(struct hd_tensorfile *f, const char *name, int64_t *count, struct hd_err *err)
{
	int64_t shape[HD_MAX_DIMS], off[HD_MAX_DIMS] = { 0 }, stride[HD_MAX_DIMS];
	uint32_t dtype;
	int nd = 0;
	float *v;

	*count = 1;
	if (!hd_tensorfile_find(f, name, &dtype, &nd, shape))
		return NULL;
	for (int d = nd - 1; d >= 0; d--) {
		stride[d] = *count;
		*count *= shape[d];
	}
	v = hd_alloc((size_t)*count * sizeof(*v) + 1);
	if (hd_tensorfile_load(f, name, HD_DTYPE_F32, v, off, shape, stride, err) >= 0)
		return v;
	free(v);
	return NULL;
}

static double mean_square(struct hd_tensorfile *f, struct hd_err *err)
{
	double sum = 0, all = 0;

	for (int i = 0; i < hd_tensorfile_count(f); i++) {
		int64_t n;
		float *v = load(f, hd_tensorfile_name(f, i), &n, err);

		for (int64_t k = 0; v && k < n; k++)
			sum += (double)v[k] * (double)v[k];
		all += (double)n;
		free(v);
	}
	return sum / all;
}

/* Returns the rms difference of the gradient `name` in a and b, relative to its rms in a, whose square is at least
 * `floor`. NaN: one of them is missing, or their sizes differ. */
static double gradients_off(struct hd_tensorfile *a, struct hd_tensorfile *b, const char *name, double floor,
			    struct hd_err *err)
{
	int64_t n, m = 0;
	float *x = load(a, name, &n, err), *y = load(b, name, &m, err);
	double diff = x && y && n == m ? 0 : NAN, square = 0;

	for (int64_t k = 0; k < n && diff == diff; k++) {
		diff += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
		square += (double)x[k] * (double)x[k];
	}
	free(x);
	free(y);
	return sqrt(part_of(diff, fmax(square, floor * (double)n)));
}

static struct hd_tensorfile *gradients(const char *dir, const char *name, int steps, struct hd_err *err)
{
	char *path = hd_format("%s/%s/step-%08d/heddle/gradients.safetensors", dir, name, steps);
	struct hd_tensorfile *f = NULL;

	hd_tensorfile_read(path, &f, err);
	free(path);
	return f;
}

static int compare_gradients(const struct hd_comparison *c, const char *dir, struct worst_difference *w, int *count,
			     struct hd_err *err)
{
	struct hd_tensorfile *one = gradients(dir, "one", c->steps, err), *many = gradients(dir, "many", c->steps, err);
	struct hd_tensorfile *again = c->again ? gradients(dir, "again", c->steps, err) : NULL;
	double floor = one && many ? mean_square(one, err) / 1000 : 0;

	*count = one ? hd_tensorfile_count(one) : 0;
	for (int i = *count - 1; i >= 0 && many && !err->code; i--) {
		const char *name = hd_tensorfile_name(one, i);
		double seen = again ? gradients_off(one, again, name, floor, err) : 0;

		worse(w, gradients_off(one, many, name, floor, err),
		      at_least(hd_comparison_bound(c, c->steps - 1), seen), "gradient of %s", name);
	}
	hd_tensorfile_close(one);
	hd_tensorfile_close(many);
	hd_tensorfile_close(again);
	return err->code;
}

/* -- the verdict --------------------------------------------------------------------------------------------- */
int hd_compare(const struct hd_comparison *c, const char *dir, FILE *out, struct hd_err *err)
{
	struct worst_difference numbers = { 0 }, tensors = { 0 }, *w;
	const char *dtype = c->bf16 ? "bf16" : "fp32";
	int count = 0;

	HD_TRY(compare_numbers(c, dir, &numbers, err));
	HD_TRY(compare_gradients(c, dir, &tensors, &count, err));
	fprintf(out, "worst of %d losses and norms: %s, off by %.3g, %.2f times what rounding in %s explains\n",
		2 * c->steps, numbers.what, numbers.error, numbers.off, dtype);
	fprintf(out, "worst of %d gradients: %s, off by %.3g, %.2f times what rounding in %s explains\n", count,
		tensors.what, tensors.error, tensors.off, dtype);
	w = numbers.off > tensors.off ? &numbers : &tensors;
	if (w->off <= 1)
		return HD_OK;
	return hd_err_set(
		err, HD_EINVAL,
		"the layout does not train the same model as one rank: %s differs by %.3g, %.1f times what rounding "
		"in %s explains",
		w->what, w->error, w->off, dtype);
}

/* Collects a launcher's message in words. Launchers frame a message in lines of dashes: it is the paragraph after the
 * first of these, or else the last line. */
static void launcher_line(const char *line, int *framed, char *words, size_t room)
{
	size_t n = strcspn(line, "\n"), had = strlen(words);

	if (strspn(line, "- \t") < n) {
		if (*framed == 1)
			snprintf(words + had, room - had, "%s%.*s", had ? " " : "", (int)n, line);
		else if (!*framed)
			snprintf(words, room, "%.*s", (int)n, line);
		return;
	}
	if (n && !*framed)
		*words = 0;
	*framed = n && !*framed ? 1 : *framed && *words ? 2 : *framed;
}

static void last_words(FILE *f, char *message, char *words, size_t room)
{
	char line[2000];
	int framed = 0; /* 1: in that paragraph, 2: after it */

	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "heddle: initial weights", 23))
			continue;
		if (!strncmp(line, "heddle: ", 8))
			snprintf(message, room, "%.*s", (int)strcspn(line + 8, "\n"), line + 8);
		else
			launcher_line(line, &framed, words, room);
	}
}

void hd_compare_run_error(const char *dir, const char *name, struct hd_err *err)
{
	char *path = hd_format("%s/%s.out", dir, name), message[600] = "", words[600] = "";
	FILE *f = fopen(path, "r");

	if (f) {
		last_words(f, message, words, sizeof(words));
		fclose(f);
	}
	hd_err_set(err, HD_EIO, "%s did not train: %s%s", strcmp(name, "one") ? "the layout" : "one rank",
		   *message ? message
		   : *words ? "it printed no message; its launcher said: "
			    : "it printed no message",
		   *message ? "" : words);
	free(path);
}
