/* SPDX-License-Identifier: Apache-2.0
 * t/lib/fuzz_args.h - draws numbers, texts, handles and structs of arguments from the seed of t/plugins/fuzz.c.
 */
#ifndef HD_T_LIB_FUZZ_ARGS_H
#define HD_T_LIB_FUZZ_ARGS_H
#include <heddle/strategy.h>
#include <string.h>

enum kind { DIM, AXIS, GROUP, TENSOR, NODE, BLOCK, OP, KINDS };
enum { POOL = 64, ARGS = 8192 };

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *axis;
	uint64_t random;
	int64_t wild, calls;
	int stages, spare; /* the axis is that of the stages; it has a coordinate without a part of the model */
	int lowering,
		once; /* in slot lower: the cursor is in a unit of micro-batches, or in one that runs once per step */
	int in_lower;
	uint32_t *made; /* counts of each call, in memory shared with the test */
	const void *pool[KINDS][POOL];
	uint32_t n[KINDS];
};

/* -- chance ---------------------------------------------------------------------------------------------------------------- */
static uint64_t draw(struct hd_strategy *s, uint64_t n)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random % n;
}

static int is_wild(struct hd_strategy *s)
{
	return (int64_t)draw(s, 1000) < s->wild;
}

static int64_t any_number(struct hd_strategy *s)
{
	static const int64_t far[] = { 0,         -1,        1,          2,         3,         7,
				       64,        255,       1000,       INT16_MAX, INT32_MAX, INT32_MIN,
				       INT64_MAX, INT64_MIN, UINT32_MAX, 1 << 24,   1 << 20 };

	return draw(s, 2) ? far[draw(s, sizeof(far) / sizeof(*far))] : (int64_t)draw(s, UINT64_MAX);
}

/* Returns 0 to n - 1, or any number. */
static int64_t number(struct hd_strategy *s, int64_t n)
{
	return is_wild(s) ? any_number(s) : (int64_t)draw(s, (uint64_t)n);
}

/* Returns 1 to most, or any number. */
static int64_t count_of(struct hd_strategy *s, int64_t most)
{
	return is_wild(s) ? any_number(s) : 1 + (int64_t)draw(s, (uint64_t)most);
}

/* Returns a count for an array of `room` entries: least to most, up to `room`, or more than any call accepts. */
static uint32_t count(struct hd_strategy *s, uint32_t least, uint32_t most, uint32_t room)
{
	if (!is_wild(s))
		return least + (uint32_t)draw(s, most - least + 1);
	return draw(s, 4) ? (uint32_t)draw(s, room + 1) : UINT32_MAX - (uint32_t)draw(s, 9);
}

static const char *any_text(struct hd_strategy *s)
{
	static char longest[5000];
	static const char *const far[] = { NULL,
					   "",
					   "\n",
					   "%s%n%d",
					   "a b",
					   "\xff\xfe",
					   "..",
					   "batch,",
					   ",",
					   "key=",
					   "=1",
					   "n=1e999",
					   "a +",
					   "((((",
					   "where(a",
					   "0x/..",
					   "-9999999999999999999",
					   longest };

	memset(longest, 'a', sizeof(longest) - 1);
	return far[draw(s, sizeof(far) / sizeof(*far))];
}

static const char *text(struct hd_strategy *s, const char *const *known, uint32_t n)
{
	return is_wild(s) ? any_text(s) : known[draw(s, n)];
}
#define TEXT(s, ...) \
	text(s, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

/* -- handles ----------------------------------------------------------------------------------------------------------------- */
static void keep(struct hd_strategy *s, enum kind kind, const void *at)
{
	if (!at)
		return;
	s->pool[kind][s->n[kind] < POOL ? s->n[kind] : draw(s, POOL)] = at;
	s->n[kind] += s->n[kind] < POOL;
}

static const void *any_handle(struct hd_strategy *s)
{
	static char nowhere[4096];
	uint32_t kind = (uint32_t)draw(s, KINDS);

	switch (draw(s, 4)) {
	case 0: return NULL;
	case 1: return nowhere + draw(s, sizeof(nowhere));
	case 2: return (const void *)(uintptr_t)draw(s, UINT64_MAX);
	default: return s->n[kind] ? (const char *)s->pool[kind][draw(s, s->n[kind])] + 8 * draw(s, 2) : nowhere;
	}
}

static const void *handle(struct hd_strategy *s, enum kind kind)
{
	/* an op is the plugin's memory, which the engine must read, so its address is always valid */
	if (kind == OP)
		return s->n[OP] && !is_wild(s) ? s->pool[OP][draw(s, s->n[OP])] : NULL;
	if (is_wild(s))
		return any_handle(s);
	return s->n[kind] ? s->pool[kind][draw(s, s->n[kind])] : NULL;
}

static struct hd_tensor *tensor(struct hd_strategy *s)
{
	return (struct hd_tensor *)(uintptr_t)handle(s, TENSOR);
}

static int is_known(const struct hd_strategy *s, enum kind kind, const void *at)
{
	for (uint32_t i = 0; i < s->n[kind]; i++)
		if (s->pool[kind][i] == at)
			return 1;
	return 0;
}

/* Forgets nodes and tensors, which a call may have replaced. */
static void forget_nodes(struct hd_strategy *s)
{
	if (!is_wild(s))
		s->n[NODE] = s->n[TENSOR] = 0;
}

/* Returns a dim of x, or a different one. */
static const struct hd_dim *dim_of(struct hd_strategy *s, const struct hd_tensor *x)
{
	if (is_wild(s) || !is_known(s, TENSOR, x) || !x->ndim)
		return handle(s, DIM);
	return x->dims[draw(s, x->ndim)];
}

static struct hd_tensor *made(struct hd_strategy *s, struct hd_tensor *t)
{
	keep(s, TENSOR, t);
	return t;
}

/* Memory for a struct of arguments, with room after it for a wrong size. */
struct args {
	_Alignas(16) unsigned char byte[ARGS];
};

static void *sized(struct hd_strategy *s, struct args *a, size_t size)
{
	memset(a, 0, sizeof(*a));
	if (is_wild(s))
		for (size_t i = size; i < ARGS; i += 8)
			a->byte[i] = (unsigned char)draw(s, 256);
	if (is_wild(s))
		size = draw(s, 2) ? draw(s, ARGS) : (size_t)any_number(s);
	memcpy(a, &size, sizeof(size));
	return is_wild(s) && !draw(s, 4) ? NULL : a;
}

static struct hd_pos position(struct hd_strategy *s)
{
	struct hd_pos at = { .add = (int32_t)number(s, 2), .step = (int32_t)number(s, 2) };

	if (!draw(s, 3) && s->n[GROUP])
		at.group = handle(s, GROUP), at.mul = (int32_t)number(s, 2);
	if (is_wild(s))
		at.mul = (int32_t)any_number(s), at.reserved[draw(s, 3)] = (uint32_t)any_number(s);
	return at;
}

static struct hd_place place(struct hd_strategy *s, const struct hd_tensor *x)
{
	struct hd_place to = { .kind = (uint8_t)number(s, 2) };

	if (to.kind == HD_PLACE_SHARD)
		to.dim = dim_of(s, x);
	to.role = (uint8_t)draw(s, s->spare ? 3 : 1);
	if (is_wild(s)) {
		to.kind = (uint8_t)draw(s, 6), to.red = (uint8_t)draw(s, 4), to.role = (uint8_t)draw(s, 3);
		to.order = (uint8_t)draw(s, 4), to.index = (int32_t)any_number(s), to.level = (int32_t)any_number(s);
		to.reserved[0] = (uint32_t)draw(s, 2), to.dim = draw(s, 2) ? handle(s, DIM) : to.dim;
	}
	return to;
}

static uint32_t dtype(struct hd_strategy *s)
{
	static const uint32_t known[] = { HD_DTYPE_F32, HD_DTYPE_F64, HD_DTYPE_BF16, HD_DTYPE_I32,
					  HD_DTYPE_U8,  HD_DTYPE_B1,  HD_DTYPE_F16,  HD_DTYPE_I64 };

	return is_wild(s) ? (uint32_t)any_number(s) : known[draw(s, s->wild ? 8 : 2)];
}

static struct hd_members members(struct hd_strategy *s)
{
	struct hd_members m = { .group = handle(s, GROUP),
				.from = (int32_t)number(s, 1),
				.to = (int32_t)count_of(s, 1) };

	if (is_wild(s))
		m.reserved[0] = (uint32_t)draw(s, 3);
	return m;
}

/* Draws tensors, often the same one several times, so that their dims are equal. */
static void tensors(struct hd_strategy *s, struct hd_tensor **to, uint32_t room)
{
	struct hd_tensor *x = tensor(s);

	for (uint32_t i = 0; i < room; i++)
		to[i] = is_wild(s) || !draw(s, 6) ? tensor(s) : x;
}

#endif
