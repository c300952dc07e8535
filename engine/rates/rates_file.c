/* SPDX-License-Identifier: Apache-2.0
 * Reads and prints the measured rates of a machine file:
 *
 *	[measured]
 *	processor = ...
 *	[product forward]		; or backward, weights
 *	fp32 = 1024x384x384:160e9, ...	; rows x columns x summed : FLOP/s
 *	[movement all-reduce]
 *	rate = 1e6:5e9, ...		; bytes that a rank sends : bytes/s
 *	[kernel NAME]
 *	fp32 = 1e6:12e9, ...		; bytes : bytes/s; for attention FLOPs per byte : FLOP/s
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/config/conf.h"
#include "engine/file/installed.h"
#include "engine/rates/rates.h"
#include <stdlib.h>
#include <string.h>

static const char *const types[HD_RATE_TYPES] = { "fp32", "bf16" };
static const char *const kinds[] = { "forward", "backward", "weights" };

static const struct hd_option measured_keys[] = {
	{ "processor", HD_OPT_STR, 0, "", NULL, "the processor that was measured" },
	{ "build", HD_OPT_STR, 0, "", NULL, "the build that measured it" },
	{ "date", HD_OPT_STR, 0, "", NULL, "when" },
	{ "device", HD_OPT_STR, 0, "cpu", NULL, "cpu or cuda" },
	{ "cores", HD_OPT_INT, 0, NULL, "1..", "cores of a host, which its ranks share" },
	{ "hosts", HD_OPT_INT, 0, "1", "1..", "hosts that were measured" },
	{ "ranks", HD_OPT_INT, 0, "1", "1..", "ranks that measured" },
	{ "threads", HD_OPT_INT, 0, NULL, "1..", "threads of each" },
	{ "quick", HD_OPT_BOOL, 0, "no", NULL, "by heddle machine --quick" },
	{ "launch", HD_OPT_NUM, 0, "0", "0..", "extra seconds of a launch by one rank with all cores" },
	{ "exchange", HD_OPT_NUM, 0, "0", "0..", "seconds to hand a cache line from one core to another" },
	{ "turn", HD_OPT_NUM, 0, "0", "0..", "extra seconds of a movement by each of the ranks that share a core" },
	{ "step", HD_OPT_NUM, 0, "0", "0..",
	  "seconds of a GPU's step that the host takes to start it and to wait for its end" },
};
static const struct hd_option rate_keys[] = {
	{ "fp32", HD_OPT_STR, 0, "", NULL, "rates of one core in fp32" },
	{ "bf16", HD_OPT_STR, 0, "", NULL, "rates of one core in bf16" },
};

static const struct hd_option movement_keys[] = {
	{ "rate", HD_OPT_STR, 0, NULL, NULL, "rates between ranks of a host" },
};

/* -- reading ---------------------------------------------------------------------------------------- */
/* Reads three extents, such as "1024x384x384". Returns 0 if the text is something else. */
static int extents(char *text, struct hd_rate_point *x)
{
	double *to[] = { &x->rows, &x->columns, &x->summed };
	char *rest = NULL, *p = strtok_r(text, "x", &rest);
	int n = 0;

	for (; p && n < 3; p = strtok_r(NULL, "x", &rest), n++)
		if (hd_word_num(hd_parse_trim(p), to[n]) < 0 || *to[n] < 1)
			return 0;
	return n == 3 && !p;
}

/* Reads "SIZE:RATE", where the size of a product is its three extents. Returns 0 if the text is something else. */
static int read_point(char *text, int product, struct hd_rate_point *x)
{
	char *colon = strchr(text, ':');

	*x = (struct hd_rate_point){ .at = 0 };
	if (!colon)
		return 0;
	*colon = 0;
	if (hd_word_num(hd_parse_trim(colon + 1), &x->rate) < 0 || x->rate <= 0)
		return 0;
	return product ? extents(hd_parse_trim(text), x) : hd_word_num(hd_parse_trim(text), &x->at) >= 0 && x->at > 0;
}

static int read_points(struct hd_conf *c, struct hd_section *s, const char *key, int product,
		       struct hd_rate_points *out, struct hd_err *err)
{
	char *text = hd_strdup(hd_section_str(s, key)), *rest = NULL;

	for (char *p = strtok_r(text, ",", &rest); p && !err->code; p = strtok_r(NULL, ",", &rest)) {
		char *word = hd_strdup(hd_parse_trim(p));
		struct hd_rate_point x;

		if (!read_point(p, product, &x) || (!product && out->n && x.at <= out->v[out->n - 1].at))
			hd_section_fail(c, s, key, err, HD_EINVAL, "'%s' is not a point %s", word,
					product ? "ROWSxCOLUMNSxSUMMED:RATE"
						: "SIZE:RATE with a size above the last one's");
		else
			hd_rates_add(out, x);
		free(word);
	}
	free(text);
	return err->code;
}

static int product_kind(struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	for (int k = 0; k < HD_PRODUCT_KINDS; k++)
		if (!strcmp(hd_section_name(s), kinds[k]))
			return k;
	return hd_section_fail(c, s, NULL, err, HD_EINVAL, "a product is forward, backward or weights");
}

static int read_section(struct hd_conf *c, struct hd_section *s, struct hd_rates *r, struct hd_err *err)
{
	static const struct hd_key_table table = { rate_keys, HD_LEN(rate_keys), 0 };
	int product = hd_section_is(s, "product"), kind = 0;
	struct hd_kernel_rates *k = NULL;

	HD_TRY(hd_section_check(c, s, &table, 1, err));
	if (product)
		HD_TRY(kind = product_kind(c, s, err));
	else
		k = hd_rates_kernel(r, hd_section_name(s));
	for (int t = 0; t < HD_RATE_TYPES; t++)
		HD_TRY(read_points(c, s, types[t], product, product ? &r->products[kind][t] : &k->of[t], err));
	return HD_OK;
}

static int read_movement(struct hd_conf *c, struct hd_section *s, struct hd_rates *r, struct hd_err *err)
{
	static const struct hd_key_table table = { movement_keys, HD_LEN(movement_keys), 0 };

	HD_TRY(hd_section_check(c, s, &table, 1, err));
	return read_points(c, s, "rate", 0, &hd_rates_movement(r, hd_section_name(s))->of[0], err);
}

static void text(char *to, size_t room, const struct hd_section *s, const char *key)
{
	snprintf(to, room, "%s", hd_section_str(s, key));
}

static int read_all(struct hd_conf *c, struct hd_section *s, struct hd_rates *r, struct hd_err *err)
{
	static const struct hd_key_table table = { measured_keys, HD_LEN(measured_keys), 0 };

	HD_TRY(hd_section_check(c, s, &table, 1, err));
	text(r->processor, sizeof(r->processor), s, "processor");
	text(r->build, sizeof(r->build), s, "build");
	text(r->date, sizeof(r->date), s, "date");
	text(r->device, sizeof(r->device), s, "device");
	r->cores = hd_section_int(s, "cores");
	r->hosts = hd_section_int(s, "hosts");
	r->ranks = hd_section_int(s, "ranks");
	r->threads = hd_section_int(s, "threads");
	r->quick = (int)hd_section_int(s, "quick");
	r->launch = hd_section_num(s, "launch");
	r->exchange = hd_section_num(s, "exchange");
	r->turn = hd_section_num(s, "turn");
	r->step = hd_section_num(s, "step");
	for (s = hd_conf_next(c, "product", NULL); s; s = hd_conf_next(c, "product", s))
		HD_TRY(read_section(c, s, r, err));
	for (s = hd_conf_next(c, "movement", NULL); s; s = hd_conf_next(c, "movement", s))
		HD_TRY(read_movement(c, s, r, err));
	for (s = hd_conf_next(c, "kernel", NULL); s; s = hd_conf_next(c, "kernel", s))
		HD_TRY(read_section(c, s, r, err));
	return HD_OK;
}

int hd_rates_read(const char *name, struct hd_rates **out, struct hd_err *err)
{
	char *path = hd_installed_find("machines", name, err);
	struct hd_conf *c = NULL;
	struct hd_section *s;

	*out = NULL;
	if (!path)
		return err->code;
	if (hd_conf_read(path, NULL, 0, &c, err) >= 0) {
		s = hd_conf_section(c, NULL, "measured");
		if (hd_section_has(s, "cores") || hd_section_has(s, "threads")) {
			*out = hd_alloc(sizeof(**out));
			if (read_all(c, s, *out, err) < 0) {
				hd_rates_destroy(*out);
				*out = NULL;
			}
		}
	}
	hd_conf_destroy(c);
	free(path);
	return err->code;
}

/* -- writing ---------------------------------------------------------------------------------------- */
static void print_points(const struct hd_rate_points *p, const char *key, FILE *to)
{
	if (!p->n)
		return;
	fprintf(to, "%s = ", key);
	for (size_t i = 0; i < p->n; i++) {
		const struct hd_rate_point *x = &p->v[i];

		if (x->rows > 0)
			fprintf(to, "%s%.0fx%.0fx%.0f:%.3g", i ? ", " : "", x->rows, x->columns, x->summed, x->rate);
		else
			fprintf(to, "%s%.3g:%.3g", i ? ", " : "", x->at, x->rate);
	}
	fprintf(to, "\n");
}

static void print_products(const struct hd_rates *r, FILE *to)
{
	fprintf(to, "\n; Products: rows x columns x what is summed over : FLOP/s of a core, of %lld that compute it\n",
		(long long)r->threads);
	for (int k = 0; k < HD_PRODUCT_KINDS; k++) {
		fprintf(to, "[product %s]\n", kinds[k]);
		for (int t = 0; t < HD_RATE_TYPES; t++)
			print_points(&r->products[k][t], types[t], to);
	}
}

void hd_rates_print(const struct hd_rates *r, FILE *to)
{
	fprintf(to, "\n[measured]\nprocessor = %s\nbuild = %s\ndate = %s\ndevice = %s\ncores = %lld\nhosts = %lld\n",
		r->processor, r->build, r->date, r->device, (long long)r->cores, (long long)r->hosts);
	fprintf(to, "ranks = %lld\nthreads = %lld\t; of each; all computed at once\n", (long long)r->ranks,
		(long long)r->threads);
	if (r->quick)
		fprintf(to, "quick = yes\t; few and small sizes: for a trial only\n");
	if (r->launch >= 0)
		fprintf(to, "launch = %.3g\t; extra seconds of a launch by a rank with all cores\n", r->launch);
	if (r->exchange > 0)
		fprintf(to, "exchange = %.3g\t; seconds to hand a cache line from one core to another\n", r->exchange);
	if (r->turn >= 0)
		fprintf(to, "turn = %.3g\t; extra seconds of a movement by each of the ranks that share a core\n",
			r->turn);
	if (r->step >= 0)
		fprintf(to,
			"step = %.3g\t; seconds of a step that the host takes to start it and to wait for its end\n",
			r->step);
	print_products(r, to);
	if (r->nmovements)
		fprintf(to, "\n; Movements between ranks of a host: bytes that a rank sends : bytes/s\n");
	for (size_t i = 0; i < r->nmovements; i++) {
		fprintf(to, "[movement %s]\n", r->movements[i].name);
		print_points(&r->movements[i].of[0], "rate", to);
	}
	fprintf(to,
		"\n; Kernels: bytes that a launch reads and writes : bytes/s of a core.  Attention: FLOPs for each such "
		"byte : FLOP/s\n");
	for (size_t i = 0; i < r->n; i++) {
		fprintf(to, "[kernel %s]\n", r->kernels[i].name);
		for (int t = 0; t < HD_RATE_TYPES; t++)
			print_points(&r->kernels[i].of[t], types[t], to);
	}
}
