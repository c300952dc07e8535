/* SPDX-License-Identifier: Apache-2.0
 * Runs one node of a plugin on memory of its own. Inputs are numbers that bf16 can represent, so all precisions get the
 * same ones. Indices are 0, which is valid in every dim.
 */
#include <config.h>
#include "engine/conform/parts/trial.h"
#include "engine/base/half.h"
#include "engine/base/rng.h"
#include "engine/plugin/kernel.h"
#include <string.h>

static size_t bytes_of(const struct tensor *t)
{
	return (size_t)hd_local_bytes(t);
}

int hd_trial_place(const struct node *n, uint32_t out)
{
	int i = n->v.op->inplace ? n->v.op->inplace[out] : -1;

	return i >= 0 && bytes_of(n->ins[i]) == bytes_of(n->outs[out]) ? i : -1;
}

double hd_trial_number(const struct tensor *t, const char *at, int64_t i)
{
	float f;
	double d;
	uint16_t h;
	int32_t k;

	switch (t->v.dtype) {
	case HD_DTYPE_F64: return memcpy(&d, at + 8 * i, 8), d;
	case HD_DTYPE_F32: return memcpy(&f, at + 4 * i, 4), (double)f;
	case HD_DTYPE_BF16: return memcpy(&h, at + 2 * i, 2), (double)hd_of_bf16(h);
	case HD_DTYPE_I32: return memcpy(&k, at + 4 * i, 4), (double)k;
	default: return 0;
	}
}

static double number_of(uint64_t key, int64_t i)
{
	return (double)hd_of_bf16(hd_bf16_of((float)hd_random_normal(key, (uint64_t)i)));
}

static void set_number(const struct tensor *t, char *at, int64_t i, double d)
{
	float f = (float)d;
	uint16_t h = hd_bf16_of(f);

	switch (t->v.dtype) {
	case HD_DTYPE_F64: memcpy(at + 8 * i, &d, 8); return;
	case HD_DTYPE_F32: memcpy(at + 4 * i, &f, 4); return;
	case HD_DTYPE_BF16: memcpy(at + 2 * i, &h, 2); return;
	default: return;
	}
}

static void fill(const struct hd_trial *trial, char *at, uint32_t which)
{
	const struct tensor *t = trial->node->ins[which];
	int mix = trial->mixed >> which & 1 ? (int)trial->mix : HD_MIX_FIRST;

	memset(at, 0, bytes_of(t));
	for (int64_t i = 0; i < hd_local_count(t); i++)
		set_number(t, at, i,
			   (mix == HD_MIX_SECOND ? 0 : number_of(11 + which, i)) +
				   (mix == HD_MIX_FIRST ? 0 : number_of(11 + HD_MAX_INS + which, i)));
}

/* Returns the first input that is the same tensor as input i. */
static uint32_t first_of(const struct node *n, uint32_t i)
{
	uint32_t k = 0;

	while (n->ins[k] != n->ins[i])
		k++;
	return k;
}

static int make(struct hd_trial *t, struct hd_err *err)
{
	const struct node *n = t->node;

	for (uint32_t i = 0; i < n->v.nin; i++) {
		if (!hd_guarded_make(&t->in[i], bytes_of(n->ins[i]), t->guard))
			return hd_err_set(err, HD_ENOMEM, "%zu bytes", bytes_of(n->ins[i]));
		fill(t, t->in[i].at, first_of(n, i));
	}
	for (uint32_t k = 0; k < n->v.nout; k++) {
		if (!hd_guarded_make(&t->out[k], bytes_of(n->outs[k]), t->guard))
			return hd_err_set(err, HD_ENOMEM, "%zu bytes", bytes_of(n->outs[k]));
		memset(t->out[k].at, t->fill, t->out[k].bytes);
	}
	return HD_OK;
}

static char *address_of(const struct hd_trial *t, const struct tensor *x)
{
	const struct node *n = t->node;

	for (uint32_t k = 0; k < n->v.nout; k++)
		if (n->outs[k] == x)
			return t->in_place && hd_trial_place(n, k) >= 0 ? t->in[hd_trial_place(n, k)].at : t->out[k].at;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i] == x)
			return t->in[first_of(n, i)].at;
	return NULL; /* the recorder refuses other tensors */
}

static int64_t scratch_of(const struct launch *l)
{
	return l->kernel == &hd_plugin_kernel ? hd_plugin_kernel_takes(&l->prep).scratch : 0;
}

/* Fills the scratch memory with the fill byte, as another kernel would leave something there. The rest of its last cache
 * line is filled too; behind it is a page without access rights. */
static void fill_scratch(const struct hd_trial *t, const struct launch *l)
{
	int64_t bytes = scratch_of(l);

	if (bytes > 0)
		memset(hd_kernel_scratch_at(bytes), t->fill, hd_kernel_lines((size_t)bytes));
}

/* Checks that the launch wrote nothing directly after memory that it asked for. */
static int check_ends(const struct hd_trial *t, const struct launch *l, struct hd_err *err)
{
	int64_t bytes = scratch_of(l);
	const char *at = bytes > 0 ? hd_kernel_scratch_at(bytes) : NULL;

	for (size_t i = (size_t)bytes; at && i < hd_kernel_lines((size_t)bytes); i++)
		if (at[i] != (char)t->fill)
			return hd_err_set(err, HD_EBUG, "its kernel writes beyond the %lld bytes of its scratch",
					  (long long)bytes);
	if (l->kernel == &hd_plugin_kernel && hd_plugin_kernel_overrun(&l->prep))
		return hd_err_set(err, HD_EBUG, "its kernel writes beyond the end of memory from alloc");
	return HD_OK;
}

static int run_launch(const struct hd_trial *t, const struct launch *l, struct hd_err *err)
{
	const struct hd_run run = { .seed = 5, .step = t->later ? 2 : 1, .train = 1, .lr = 0.1, .loss_scale = 1 };
	void *in[HD_MAX_INS + HD_MAX_OUTS], *out[HD_MAX_OUTS];

	for (uint32_t i = 0; i < l->nin; i++)
		in[i] = address_of(t, l->in[i]);
	for (uint32_t k = 0; k < l->nout; k++)
		out[k] = address_of(t, l->out[k]);
	fill_scratch(t, l);
	l->kernel->run(&l->prep, out, in, &run);
	if (l->kernel == &hd_plugin_kernel)
		HD_TRY(hd_plugin_kernel_failed(&l->prep, err));
	return check_ends(t, l, err);
}

/* Copies results that are stored in place of an input to where they are expected. */
static void collect(struct hd_trial *t)
{
	for (uint32_t k = 0; k < t->node->v.nout && t->in_place; k++)
		if (hd_trial_place(t->node, k) >= 0)
			memcpy(t->out[k].at, t->in[hd_trial_place(t->node, k)].at, t->out[k].bytes);
}

static int overwritten(const struct hd_trial *t, uint32_t i)
{
	for (uint32_t k = 0; k < t->node->v.nout && t->in_place; k++)
		if (hd_trial_place(t->node, k) == (int)i)
			return 1;
	return 0;
}

static void look_at_inputs(struct hd_trial *t)
{
	const struct node *n = t->node;

	t->changed = -1;
	for (uint32_t i = 0; i < n->v.nin && t->changed < 0; i++) {
		struct hd_guarded was;

		if (overwritten(t, i) || !hd_guarded_make(&was, t->in[i].bytes, t->guard))
			continue;
		fill(t, was.at, first_of(n, i));
		if (memcmp(was.at, t->in[i].at, was.bytes))
			t->changed = (int)i;
		hd_guarded_release(&was);
	}
}

int hd_trial_run(struct hd_trial *t, struct hd_err *err)
{
	const struct launches *l = &t->program->launches[t->node->id];

	HD_TRY(make(t, err));
	for (size_t i = 0; i < l->n; i++)
		HD_TRY(run_launch(t, &l->v[i], err));
	collect(t);
	look_at_inputs(t);
	return HD_OK;
}

void hd_trial_release(struct hd_trial *t)
{
	for (uint32_t i = 0; i < HD_LEN(t->in); i++)
		hd_guarded_release(&t->in[i]);
	for (uint32_t k = 0; k < HD_LEN(t->out); k++)
		hd_guarded_release(&t->out[k]);
}
