/* SPDX-License-Identifier: Apache-2.0
 * The harness of the kernel tests, as described in kernel_test.h.  It prints no TAP itself.
 */
#include <config.h>
#include "engine/base/half.h"
#include "t/lib/kernel_test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 128
#define CANARY 0xa5

#define PART 4000 /* limit of fiber switches in each order of a launch but the first, so that a test ends soon */

const struct hd_device_ops *kt_device;
void (*kt_orders)(int orders, uint64_t most);

void kt_in_orders(int all)
{
	const char *asked = getenv("HD_TEST_WHOLE_ORDERS");
	static int calls;
	int part = 0, parts = 1, whole;

	if (!kt_orders)
		return;
	if (asked && strcmp(asked, "1") &&
	    (sscanf(asked, "%d/%d", &part, &parts) != 2 || parts < 1 || part < 0 || part >= parts)) {
		printf("Bail out! HD_TEST_WHOLE_ORDERS=%s: 1, or K/N with K from 0 to N - 1\n", asked);
		exit(1);
	}
	whole = asked && calls++ % parts == part;
	kt_orders(whole || (all && !asked) ? KT_ORDERS : 1, whole ? UINT64_MAX : PART);
}

static int is_float(uint32_t dtype)
{
	return dtype >> 16 == 3;
}

static size_t bytes_of(uint32_t dtype, int64_t count)
{
	return ((size_t)count * HD_BITS(dtype) + 7) / 8;
}

static float bf16_to_float(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static uint16_t float_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if (f != f)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void put(void *mem, uint32_t dtype, int64_t i, double v)
{
	if (dtype == HD_DTYPE_F64)
		((double *)mem)[i] = v;
	else if (dtype == HD_DTYPE_F32)
		((float *)mem)[i] = (float)v;
	else if (dtype == HD_DTYPE_BF16)
		((uint16_t *)mem)[i] = float_to_bf16((float)v);
	else if (dtype == HD_DTYPE_F16)
		((uint16_t *)mem)[i] = hd_f16_of((float)v);
	else if (dtype == HD_DTYPE_I32)
		((int32_t *)mem)[i] = (int32_t)v;
	else if (dtype == HD_DTYPE_I64)
		((int64_t *)mem)[i] = (int64_t)v;
	else
		((uint8_t *)mem)[i] = (uint8_t)v;
}

static double take(const void *mem, uint32_t dtype, int64_t i)
{
	if (dtype == HD_DTYPE_F64)
		return ((const double *)mem)[i];
	if (dtype == HD_DTYPE_F32)
		return ((const float *)mem)[i];
	if (dtype == HD_DTYPE_BF16)
		return bf16_to_float(((const uint16_t *)mem)[i]);
	if (dtype == HD_DTYPE_F16)
		return hd_of_f16(((const uint16_t *)mem)[i]);
	if (dtype == HD_DTYPE_I32)
		return ((const int32_t *)mem)[i];
	if (dtype == HD_DTYPE_I64)
		return (double)((const int64_t *)mem)[i];
	return ((const uint8_t *)mem)[i];
}

static int64_t values(const struct kt_buf *b) /* number of addressable values: bytes of HD_DTYPE_B1, else elements */
{
	return b->view[0].dtype == HD_DTYPE_B1 ? (int64_t)b->bytes[0] : b->count;
}

static struct hd_dim *dim_of(struct kt *t, const char *name)
{
	int i;

	for (i = 0; i < t->ndims; i++)
		if (!strcmp(t->names[i], name))
			return &t->dims[i];
	snprintf(t->names[i], sizeof(t->names[i]), "%s", name);
	t->dims[i].size = sizeof(t->dims[i]);
	t->dims[i].name = t->names[i];
	t->ndims++;
	return &t->dims[i];
}

static void parse(struct kt *t, struct hd_view *v, const char *spec)
{
	while (*spec) {
		char name[32];
		long n = 0, off = 0, whole;
		int used = 0, k = 0;

		if (sscanf(spec, "%31[^=]=%ld%n", name, &n, &used) < 2)
			break;
		spec += used;
		if (sscanf(spec, "@%ld%n", &off, &k) == 1)
			spec += k;
		whole = off + n;
		if (sscanf(spec, "/%ld%n", &whole, &k) == 1)
			spec += k;
		v->dims[v->ndim] = dim_of(t, name);
		dim_of(t, name)->n = whole;
		v->n[v->ndim] = n;
		v->off[v->ndim] = off;
		v->ndim++;
		spec += *spec == ',';
	}
}

static struct kt_buf *buf_new(struct kt *t, uint32_t dtype, const char *spec)
{
	struct kt_buf *b = hd_alloc(sizeof(*b));

	b->test = t;
	b->view[0].dtype = dtype;
	parse(t, &b->view[0], spec);
	b->view[1] = b->view[0];
	if (is_float(dtype))
		b->view[1].dtype = HD_DTYPE_F64;
	b->count = hd_view_count(&b->view[0]);
	for (int w = 0; w < 2; w++) {
		b->bytes[w] = bytes_of(b->view[w].dtype, b->count);
		b->base[w] = hd_alloc(b->bytes[w] + 3 * GUARD);
		memset(b->base[w], CANARY, b->bytes[w] + 3 * GUARD);
		b->mem[w] = (void *)(((uintptr_t)b->base[w] + 2 * GUARD - 1) / GUARD * GUARD);
		memset(b->mem[w], 0, b->bytes[w]);
		b->before[w] = hd_alloc(b->bytes[w]);
	}
	return b;
}

static void buf_free(struct kt_buf *b)
{
	for (int w = 0; w < 2; w++) {
		free(b->base[w]);
		free(b->before[w]);
	}
	free(b);
}

struct kt *kt_new(const struct hd_kernel *cpu, const struct hd_kernel *ref, const char *attr)
{
	struct kt *t = hd_alloc(sizeof(*t));

	t->kernel[KT_CPU] = cpu;
	t->kernel[KT_REF] = ref;
	t->attr = hd_strdup(attr);
	t->run.step = 1;
	t->run.train = 1;
	t->seed = 88172645463325252u;
	return t;
}

static void unprepare(struct kt *t, int w)
{
	if (t->prepared[w] && t->prep[w].release)
		t->prep[w].release(t->prep[w].state);
	memset(&t->prep[w], 0, sizeof(t->prep[w]));
	t->prepared[w] = 0;
}

void kt_free(struct kt *t)
{
	unprepare(t, 0);
	unprepare(t, 1);
	for (int i = 0; i < t->nin; i++)
		buf_free(t->in[i]);
	for (int i = 0; i < t->nout; i++)
		buf_free(t->out[i]);
	free(t->attr);
	free(t);
}

struct kt_buf *kt_in(struct kt *t, uint32_t dtype, const char *spec)
{
	return t->in[t->nin++] = buf_new(t, dtype, spec);
}

struct kt_buf *kt_out(struct kt *t, uint32_t dtype, const char *spec)
{
	return t->out[t->nout++] = buf_new(t, dtype, spec);
}

void kt_changes(struct kt_buf *in)
{
	in->changes = 1;
}

void kt_inplace(struct kt_buf *out, struct kt_buf *in)
{
	out->inplace = in;
}

static uint64_t next(struct kt *t)
{
	t->seed ^= t->seed << 13;
	t->seed ^= t->seed >> 7;
	t->seed ^= t->seed << 17;
	return t->seed;
}

void kt_ints(struct kt_buf *b, int64_t lowest, int64_t highest)
{
	uint64_t span = (uint64_t)(highest - lowest) + 1;

	for (int64_t i = 0; i < values(b); i++)
		kt_set(b, i, (double)(lowest + (int64_t)((next(b->test) >> 20) % span)));
}

void kt_reals(struct kt_buf *b, double low, double high)
{
	for (int64_t i = 0; i < values(b); i++)
		kt_set(b, i, low + (high - low) * ((double)(next(b->test) >> 11) * 0x1p-53));
}

void kt_set(struct kt_buf *b, int64_t i, double value)
{
	put(b->mem[KT_CPU], b->view[KT_CPU].dtype, i, value);
	put(b->mem[KT_REF], b->view[KT_REF].dtype, i, take(b->mem[KT_CPU], b->view[KT_CPU].dtype, i));
}

double kt_get(const struct kt_buf *b, int which, int64_t i)
{
	const void *mem = b->inplace ? b->inplace->mem[which] : b->mem[which];

	return take(mem, b->view[which].dtype, i);
}

int kt_prepare(struct kt *t, int w)
{
	struct hd_view in[HD_MAX_INS], out[HD_MAX_OUTS];
	struct hd_kernel_desc d = {
		.attr = t->attr, .nin = (uint32_t)t->nin, .nout = (uint32_t)t->nout, .in = in, .out = out
	};
	int rc;

	for (int i = 0; i < t->nin; i++)
		in[i] = t->in[i]->view[w];
	for (int i = 0; i < t->nout; i++)
		out[i] = t->out[i]->view[w];
	unprepare(t, w);
	memset(&t->err, 0, sizeof(t->err));
	rc = t->kernel[w]->prepare(&d, &t->prep[w], &t->err);
	t->prepared[w] = rc >= 0;
	/* the kernel must not need the arguments of prepare later */
	memset(in, CANARY, sizeof(in));
	memset(out, CANARY, sizeof(out));
	return rc;
}

static size_t whole_bytes(const struct kt_buf *b)
{
	return b->bytes[KT_CPU] + 3 * GUARD;
}

static struct kt_buf *operand(struct kt *t, int i)
{
	return i < t->nin ? t->in[i] : t->out[i - t->nin];
}

/* Operands in the device's memory, and copies of them after a run. */
struct away {
	void *whole[HD_MAX_INS + HD_MAX_OUTS], *back[HD_MAX_INS + HD_MAX_OUTS];
	void *in[HD_MAX_INS], *out[HD_MAX_OUTS], *rows;
	struct hd_run run;
};

/* A device with its own memory finds the number of rows in use there, as counts that it adds up. */
static void *numbers_there(struct hd_run *run, struct hd_err *err)
{
	int32_t n[300] = { (int32_t)run->rows / 3 };
	void *p = kt_device->alloc(sizeof(n), err);

	n[HD_LEN(n) - 1] = (int32_t)run->rows - n[0];
	if (p)
		kt_device->put(p, n, sizeof(n));
	run->row_counts = p;
	run->nrow_counts = HD_LEN(n);
	run->rows = -1;
	return p;
}

static void go_there(struct kt *t, struct away *a)
{
	a->run = t->run;
	for (int i = 0; i < t->nin + t->nout; i++) {
		struct kt_buf *b = operand(t, i);
		void *p = a->whole[i] = kt_device->alloc(whole_bytes(b), &t->err);

		a->back[i] = hd_alloc(whole_bytes(b));
		p = p ? (char *)p + ((char *)b->mem[KT_CPU] - (char *)b->base[KT_CPU]) : NULL;
		*(i < t->nin ? &a->in[i] : &a->out[i - t->nin]) = p;
	}
	for (int i = 0; i < t->nout; i++)
		for (int k = 0; k < t->nin; k++)
			if (t->out[i]->inplace == t->in[k])
				a->out[i] = a->in[k];
	if (t->run.rows_most)
		a->rows = numbers_there(&a->run, &t->err);
}

/* Runs once from the contents of the host's buffers, with their canaries, and copies the results to `back`. */
static int run_there(struct kt *t, struct away *a)
{
	for (int i = 0; i < t->nin + t->nout && !t->err.code; i++)
		kt_device->put(a->whole[i], operand(t, i)->base[KT_CPU], whole_bytes(operand(t, i)));
	if (!t->err.code) {
		kt_device->begin(&a->run);
		t->kernel[KT_CPU]->run(&t->prep[KT_CPU], a->out, a->in, &a->run);
	}
	HD_TRY(kt_device->finish(&t->err));
	for (int i = 0; i < t->nin + t->nout && !t->err.code; i++)
		kt_device->get(a->back[i], a->whole[i], whole_bytes(operand(t, i)));
	return t->err.code;
}

static void come_back(struct kt *t, struct away *a)
{
	for (int i = 0; i < t->nin + t->nout; i++) {
		kt_device->free(a->whole[i]);
		free(a->back[i]);
	}
	if (a->rows)
		kt_device->free(a->rows);
}

static int run_on_device(struct kt *t)
{
	struct away a = { .rows = NULL };
	int rc;

	kt_in_orders(t->all_orders);
	go_there(t, &a);
	rc = run_there(t, &a);
	for (int i = 0; i < t->nin + t->nout; i++)
		memcpy(operand(t, i)->base[KT_CPU], a.back[i], whole_bytes(operand(t, i)));
	come_back(t, &a);
	return rc;
}

/* Fills outputs with NaN before a run, so that a part which the kernel does not write is noticed. */
static void spoil_outputs(struct kt *t, int w)
{
	for (int i = 0; i < t->nout && !t->run.acc && !t->leaves && w == KT_CPU; i++)
		if (!t->out[i]->inplace && is_float(t->out[i]->view[0].dtype))
			memset(t->out[i]->mem[w], 0xff, t->out[i]->bytes[w]);
}

int kt_run(struct kt *t, int w)
{
	void *in[HD_MAX_INS], *out[HD_MAX_OUTS];

	if (!t->prepared[w])
		HD_TRY(kt_prepare(t, w));
	for (int i = 0; i < t->nin; i++) {
		in[i] = t->in[i]->mem[w];
		memcpy(t->in[i]->before[w], in[i], t->in[i]->bytes[w]);
	}
	for (int i = 0; i < t->nout; i++)
		out[i] = t->out[i]->inplace ? t->out[i]->inplace->mem[w] : t->out[i]->mem[w];
	spoil_outputs(t, w);
	if (w == KT_CPU && kt_device && kt_device->alloc)
		return run_on_device(t);
	t->kernel[w]->run(&t->prep[w], out, in, &t->run);
	return 0;
}

static int canaries(const struct kt_buf *b, int w)
{
	const uint8_t *p = b->base[w], *mem = b->mem[w];
	size_t all = b->bytes[w] + 3 * GUARD;

	for (size_t i = 0; i < all; i++)
		if ((p + i < mem || p + i >= mem + b->bytes[w]) && p[i] != CANARY)
			return 0;
	return 1;
}

static int replaced(const struct kt *t, const struct kt_buf *b)
{
	for (int i = 0; i < t->nout; i++)
		if (t->out[i]->inplace == b)
			return 1;
	return 0;
}

static const char *intact(struct kt *t, int w)
{
	const char *device[] = { kt_device ? kt_device->name : "cpu", "ref" };

	for (int i = 0; i < t->nin + t->nout; i++) {
		const struct kt_buf *b = i < t->nin ? t->in[i] : t->out[i - t->nin];
		const char *what = i < t->nin ? "input" : "output";
		int k = i < t->nin ? i : i - t->nin;

		if (!canaries(b, w))
			snprintf(t->why, sizeof(t->why), "%s wrote outside %s %d", device[w], what, k);
		else if (i < t->nin && !b->changes && !replaced(t, b) && memcmp(b->mem[w], b->before[w], b->bytes[w]))
			snprintf(t->why, sizeof(t->why), "%s changed %s %d", device[w], what, k);
		else
			continue;
		return t->why;
	}
	return NULL;
}

static const char *differs(struct kt *t, const struct kt_buf *b, const char *what, int k, double tol)
{
	double scale = t->least;

	for (int64_t i = 0; i < values(b); i++)
		if (isfinite(kt_get(b, KT_REF, i)))
			scale = fmax(scale, fabs(kt_get(b, KT_REF, i)));
	for (int64_t i = 0; i < values(b); i++) {
		double got = kt_get(b, KT_CPU, i), want = kt_get(b, KT_REF, i);

		if (got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= tol * scale)
			continue;
		snprintf(t->why, sizeof(t->why), "%s %d[%lld]: %s %.9g, ref %.9g, largest %.3g, tol %.3g", what, k,
			 (long long)i, kt_device ? kt_device->name : "cpu", got, want, scale, tol);
		return t->why;
	}
	return NULL;
}

int kt_enough(const struct kt *t)
{
	static struct {
		const char *kernel;
		int checks;
	} seen[64];
	const char *few = getenv("HD_TEST_FEW");
	size_t i = 0;

	if (!few || atoi(few) <= 0)
		return 0;
	while (i + 1 < HD_LEN(seen) && seen[i].kernel && strcmp(seen[i].kernel, t->kernel[KT_CPU]->name))
		i++;
	seen[i].kernel = t->kernel[KT_CPU]->name;
	return seen[i].checks++ >= atoi(few);
}

const char *kt_compare(struct kt *t, double tol)
{
	const char *why;

	for (int w = 0; w < 2; w++) {
		int rc;

		t->all_orders = 1;
		rc = kt_run(t, w);
		t->all_orders = 0;
		if (rc < 0) {
			snprintf(t->why, sizeof(t->why), "%s: %d %s", w ? "ref" : "cpu", rc, t->err.text);
			return t->why;
		}
		why = intact(t, w);
		if (why)
			return why;
	}
	why = NULL;
	for (int k = 0; k < t->nout && !why; k++)
		why = differs(t, t->out[k], "output", k, tol);
	for (int k = 0; k < t->nin && !why; k++)
		why = t->in[k]->changes ? differs(t, t->in[k], "input", k, tol) : NULL;
	return why;
}

double kt_tol(uint32_t dtype, int64_t terms)
{
	double sum = 4 * 0x1p-24 * sqrt((double)(terms > 1 ? terms : 1));

	return dtype == HD_DTYPE_BF16 ? sum + 0x1p-8 : sum;
}

/* -- implementations ------------------------------------------------------------------------------------------------------- */
static char *gather(void *ctx, const char *wanted)
{
	(void)ctx;
	return hd_strdup(wanted);
}

/* Broadcasts one implementation for all products, instead of the timed choice. */
static char *bcast(void *ctx, const char *text)
{
	char *forced = hd_strdup("");

	for (; *text; text += strcspn(text, "\n") + 1) {
		char *longer = hd_format("%s%.*s %s\n", forced, (int)strcspn(text, " "), text, (const char *)ctx);

		free(forced);
		forced = longer;
	}
	return forced;
}

void kt_pick(const char *implementation)
{
	const struct hd_exchange x = { (void *)(uintptr_t)implementation, gather, bcast };

	free(hd_device_cpu()->autotune("", &x));
}

const char *kt_lse_spec(const char *q)
{
	static char spec[100];
	char b[20], s[40], h[40];

	sscanf(q, "%19[^,],%39[^,],%39[^,]", b, s, h);
	snprintf(spec, sizeof(spec), "%s,%s,%s", b, h, s);
	return spec;
}
