/* SPDX-License-Identifier: Apache-2.0
 * Finds the fastest of the implementations that cuBLASLt names for a product, and of Heddle's own kernel, if there
 * is one (gelu_wgmma.cu).
 *
 * Each is timed once, on operands of the product's own extents.  The choices are kept as text, as on a cpu.  A
 * line's key has the GPU's name, the library's version and the complete shape, so that rank 0 can time a product of
 * another rank.  Its value is the index of the implementation among those that were timed, and their number.
 *
 * Sums of products are timed likewise, after their products.  Choice 0 is the products one after another, and the
 * others are single launches.
 */
#include "kernels/cuda/matmul/product.h"
extern "C" {
#include "engine/base/parse.h"
}

#define KEY 2048
#define TIMES 5
/* The heuristic's first stays unless another takes this much less time: timings of equal ones differ by a few
 * percent. */
#define WORTH 0.97

struct choice {
	struct choice *next;
	char *key;
	int pick, of;
};

static struct choice *choices;
static int fixed;

void hd_product_fixed(int yes)
{
	fixed = yes;
}

/* -- as text ------------------------------------------------------------------------------------------------------- */
/* The number stands for the way in which the library is asked for implementations (product_lt.cu).  A list in a
 * different order needs a new number. */
#define ONE "gemm1"
/* The same list with Heddle's own kernel (gelu_wgmma.cu) at its end.  A different kernel needs a new number. */
#define ONE_WGMMA "gemm1w1"
/* The number stands for the kernels (chain.cu).  If the one for 9.0a is among them, the list is longer and the key
 * different. */
#define SUM "chain1"
#define SUM_WGMMA "chain1w"

static int prefix_of(char *text, const char *kind, const char *gpu)
{
	int n = snprintf(text, KEY, "%s:%s:%zu:", kind, gpu, hd_product_version());

	for (char *p = text; *p; p++)
		if (*p == ' ')
			*p = '-';
	return n;
}

/* Writes the shape as text, and returns the number of characters. */
static int write_shape(char *text, size_t room, const struct hd_mm_shape *s)
{
	size_t at = (size_t)snprintf(text, room, "%d,%d", s->ndim, s->then);

	for (int o = 0; o < HD_MM_OPERANDS; o++)
		at += (size_t)snprintf(text + at, room - at, ",%d", s->dtype[o] ? (int)HD_BITS(s->dtype[o]) : 0);
	for (int d = 0; d < s->ndim; d++)
		at += (size_t)snprintf(text + at, room - at, ",%lld", (long long)s->n[d]);
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		for (int d = 0; d < s->ndim; d++)
			at += (size_t)snprintf(text + at, room - at, ",%lld", (long long)s->stride[o][d]);
	return (int)at;
}

static void key_of(char *text, const struct hd_product *p, const char *gpu)
{
	int at = prefix_of(text, hd_product_has_own(p) ? ONE_WGMMA : ONE, gpu);

	write_shape(text + at, KEY - (size_t)at, hd_product_shape(p));
}

static void chain_key(char *text, const struct hd_chain *c, const char *gpu)
{
	struct hd_product *const *p;
	int at = prefix_of(text, hd_chain_choices() > 2 ? SUM_WGMMA : SUM, gpu), n = hd_chain_products(c, &p);

	for (int i = 0; i < n; i++) {
		at += write_shape(text + at, KEY - (size_t)at, hd_product_shape(p[i]));
		text[at++] = i + 1 < n ? '+' : 0;
	}
}

/* Reads a shape from *key.  Returns 0 if it is none. */
static int read_shape(struct hd_mm_shape *s, const char **key)
{
	memset(s, 0, sizeof(*s));
	s->ndim = (int)hd_next_number(key);
	s->then = (int)hd_next_number(key);
	if (s->ndim < 3 || s->ndim > HD_MAX_DIMS + 3)
		return 0;
	for (int o = 0; o < HD_MM_OPERANDS; o++) {
		int64_t bits = hd_next_number(key);

		s->dtype[o] = bits == 32 ? HD_DTYPE_F32 : bits == 16 ? HD_DTYPE_BF16 : 0;
	}
	for (int d = 0; d < s->ndim; d++)
		s->n[d] = hd_next_number(key);
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		for (int d = 0; d < s->ndim; d++)
			s->stride[o][d] = hd_next_number(key);
	return 1;
}

/* Gets the products of a key of this GPU and library, and returns their number, or 0 if the key is not one. */
static int products_of(struct hd_product **p, const char *kind, const char *key, const char *gpu)
{
	char mine[KEY];
	int n = prefix_of(mine, kind, gpu), i = 0;

	if (strncmp(key, mine, (size_t)n))
		return 0;
	for (key += n; i < HD_CHAIN_MOST; key++) {
		struct hd_mm_shape s;

		if (!read_shape(&s, &key) || !(p[i] = hd_product_get(&s)))
			break;
		i++;
		if (!*key || *key == '\n' || *key == ' ')
			return i;
		if (*key != '+')
			break;
	}
	while (i)
		hd_product_release(p[--i]);
	return 0;
}

static struct choice *find_choice(const char *key, size_t n)
{
	for (struct choice *c = choices; c; c = c->next)
		if (strlen(c->key) == n && !memcmp(c->key, key, n))
			return c;
	return NULL;
}

static void set_choice(const char *key, size_t n, int pick, int of)
{
	struct choice *c = find_choice(key, n);

	if (!c) {
		c = (struct choice *)hd_alloc(sizeof(*c));
		c->key = hd_format("%.*s", (int)n, key);
		c->next = choices;
		choices = c;
	}
	c->pick = pick;
	c->of = of;
}

static int is_ours(const char *key)
{
	return !strncmp(key, ONE ":", strlen(ONE) + 1) || !strncmp(key, ONE_WGMMA ":", strlen(ONE_WGMMA) + 1) ||
	       !strncmp(key, SUM, strlen(SUM));
}

/* over 0: known choices stay. */
static void read_choices(const char *text, int over)
{
	while (text && *text) {
		size_t line = strcspn(text, "\n"), key = strcspn(text, " \n");
		int pick, of;

		if (key < line && is_ours(text) && (over || !find_choice(text, key)) &&
		    sscanf(text + key, " %d/%d", &pick, &of) == 2 && pick >= 0 && pick < of)
			set_choice(text, key, pick, of);
		text += line + (text[line] == '\n');
	}
}

/* -- time ---------------------------------------------------------------------------------------------------------- */
static size_t bytes_of(const struct hd_mm_shape *s, int o)
{
	int64_t last = 0;

	for (int d = 0; d < s->ndim; d++)
		last += (s->n[d] - 1) * s->stride[o][d];
	return s->dtype[o] ? (size_t)((last + 1) * HD_BITS(s->dtype[o]) / 8 + 255) / 256 * 256 : 0;
}

struct timing {
	struct hd_product *p[HD_CHAIN_MOST];
	struct hd_chain *chain; /* NULL: only p[0] is timed */
	int n, sum;             /* sum: as one launch */
	struct hd_run run;
	char *mem; /* operands of each product by their numbers, then the gelu's input, which has c's layout */
	cudaEvent_t from, to;
};

static int once(const struct timing *t)
{
	const struct hd_mm_shape *s = hd_product_shape(t->p[0]);
	char *at[HD_MM_OPERANDS + 1] = { t->mem }, *c = NULL;
	const void *a[HD_CHAIN_MOST], *b[HD_CHAIN_MOST];

	for (int i = 0; i < t->n; i++, at[0] = at[HD_MM_OPERANDS]) {
		s = hd_product_shape(t->p[i]);
		for (int o = 0; o < HD_MM_OPERANDS; o++)
			at[o + 1] = at[o] + bytes_of(s, o);
		a[i] = at[HD_MM_A];
		b[i] = at[HD_MM_B];
		c = c ? c : at[HD_MM_C];
		if (!t->sum)
			HD_TRY(hd_product_run(t->p[i], &t->run, c, a[i], b[i],
					      s->dtype[HD_MM_BIAS] ? at[HD_MM_BIAS] : NULL, i ? c : NULL,
					      s->then >= HD_MM_GELU_KEEP ? at[HD_MM_OPERANDS] : NULL));
	}
	return t->sum ? hd_chain_run(t->chain, &t->run, c, a, b, NULL) : HD_OK;
}

/* Returns the milliseconds of TIMES runs, or a negative number if the choice does not run. */
static float time_of(struct timing *t, int pick)
{
	cudaStream_t queue = (cudaStream_t)t->run.queue;
	float ms = -1;

	if (t->chain)
		hd_chain_pick(t->chain, t->sum = pick);
	else
		hd_product_pick(t->p[0], pick);
	if (once(t) < 0)
		return -1;
	cudaEventRecord(t->from, queue);
	for (int i = 0; i < TIMES; i++)
		if (once(t) < 0)
			return -1;
	cudaEventRecord(t->to, queue);
	if (cudaEventSynchronize(t->to) != cudaSuccess || cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
		return -1;
	return ms;
}

static int choices_of(const struct timing *t)
{
	return t->chain ? hd_chain_choices() : hd_product_choices(t->p[0]);
}

static int fastest(struct timing *t)
{
	float least = time_of(t, 0);
	int best = 0;

	for (int i = 1; i < choices_of(t); i++) {
		float ms = time_of(t, i);

		if (ms >= 0 && (least < 0 || ms < least * (best ? 1 : WORTH))) {
			least = ms;
			best = i;
		}
	}
	return best;
}

static void pick_product(struct hd_product *p, const char *gpu)
{
	char key[KEY];
	struct choice *c;

	key_of(key, p, gpu);
	c = find_choice(key, strlen(key));
	hd_product_pick(p, c && !fixed && c->of == hd_product_choices(p) ? c->pick : 0);
}

/* If memory for the operands is short, nothing is timed, and the heuristic's first stays. */
static void measure(const char *key, size_t n, cudaStream_t queue, const char *gpu)
{
	struct timing t;
	size_t bytes = 0;

	memset(&t, 0, sizeof(t));
	t.n = products_of(t.p, ONE, key, gpu);
	t.n = t.n ? t.n : products_of(t.p, ONE_WGMMA, key, gpu);
	if (!t.n && ((t.n = products_of(t.p, SUM, key, gpu)) || (t.n = products_of(t.p, SUM_WGMMA, key, gpu))))
		t.chain = hd_chain_get(t.p, t.n);
	for (int i = 0; i < t.n; i++) {
		const struct hd_mm_shape *s = hd_product_shape(t.p[i]);

		for (int o = 0; o < HD_MM_OPERANDS; o++)
			bytes += bytes_of(s, o);
		bytes += s->then >= HD_MM_GELU_KEEP ? bytes_of(s, HD_MM_C) : 0;
		if (t.chain) /* compares it with its products at their best */
			pick_product(t.p[i], gpu);
	}
	t.run.queue = (void *)queue;
	if (t.n && (t.n == 1 || t.chain) && choices_of(&t) > 1 && cudaMalloc((void **)&t.mem, bytes) == cudaSuccess) {
		cudaMemsetAsync(t.mem, 0x3c, bytes, queue); /* numbers of about 0.011 */
		cudaEventCreate(&t.from);
		cudaEventCreate(&t.to);
		set_choice(key, n, fastest(&t), choices_of(&t));
		cudaEventDestroy(t.from);
		cudaEventDestroy(t.to);
		cudaStreamSynchronize(queue);
		cudaFree(t.mem);
	}
	cudaGetLastError();
	if (t.chain)
		hd_chain_release(t.chain);
	for (int i = 0; i < t.n; i++)
		hd_product_release(t.p[i]);
}

/* -- what the device calls ----------------------------------------------------------------------------------------- */
static char *wanted_keys(const char *gpu)
{
	char *text = hd_strdup(""), key[KEY];

	for (struct hd_product *p = hd_product_next(NULL); p; p = hd_product_next(p)) {
		if (hd_product_choices(p) < 2)
			continue;
		key_of(key, p, gpu);
		hd_append(&text, "%s\n", key);
	}
	for (struct hd_chain *c = hd_chain_next(NULL); c; c = hd_chain_next(c)) {
		chain_key(key, c, gpu);
		hd_append(&text, "%s\n", key);
	}
	return text;
}

static char *answer(const char *wanted, cudaStream_t queue, const char *gpu)
{
	char *text = hd_strdup("");

	while (*wanted) {
		size_t n = strcspn(wanted, "\n");
		struct choice *c;

		if (n && !find_choice(wanted, n))
			measure(wanted, n, queue, gpu);
		c = find_choice(wanted, n);
		if (c && !strstr(text, c->key))
			hd_append(&text, "%s %d/%d\n", c->key, c->pick, c->of);
		wanted += n + (wanted[n] == '\n');
	}
	return text;
}

/* A product keeps the first implementation if a different number of them was timed: the index then belongs to a
 * different list. */
static void pick_all(const char *gpu)
{
	char key[KEY];

	for (struct hd_product *p = hd_product_next(NULL); p; p = hd_product_next(p))
		pick_product(p, gpu);
	for (struct hd_chain *s = hd_chain_next(NULL); s; s = hd_chain_next(s)) {
		struct choice *c;

		chain_key(key, s, gpu);
		c = find_choice(key, strlen(key));
		hd_chain_pick(s, c && !fixed && c->of == hd_chain_choices() ? c->pick : 0);
	}
}

char *hd_product_tune(const char *known, const struct hd_exchange *x, cudaStream_t queue, const char *gpu)
{
	char *wanted, *joined, *mine, *text;

	if (fixed) {
		pick_all(gpu);
		return hd_strdup("");
	}
	wanted = wanted_keys(gpu);
	read_choices(known, 0);
	if (x) {
		joined = x->gather(x->ctx, wanted);
		mine = joined ? answer(joined, queue, gpu) : hd_strdup("");
		text = x->bcast(x->ctx, mine);
		read_choices(text, 1);
		free(joined);
		free(mine);
	} else {
		text = answer(wanted, queue, gpu);
	}
	pick_all(gpu);
	free(wanted);
	return text;
}
