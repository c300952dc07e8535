/* SPDX-License-Identifier: Apache-2.0
 * Matrix products by oneDNN, and by own kernels (own.c) where these are faster.
 *
 * oneDNN offers several implementations of one product, and the first is not always the fastest. So every shape is
 * timed once (rivals.c), and the pick is stored as text. The key of a shape contains all that the timing depends on. A
 * shape can be rebuilt from its key, so that rank 0 can time shapes that only other ranks need.
 *
 * Where bits must not depend on timings, nothing is timed. Products then run on tiles, with vectors (kernels/cpu/gemm)
 * or in pieces (matmul_pieces.c), by a rule that depends on the shape and the processor alone.
 */
#include <config.h>
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hd_mm {
	struct hd_mm_shape shape;
	struct hd_mm_primitive made[2]; /* [0] overwrites, [1] adds */
	/* Used instead: pieces where nothing may depend on timing and threads, or where scratch would be too large;
	 * own where these are faster. */
	struct hd_mm_pieces *pieces[2];
	struct hd_mm_own own[2];
	int users, needs; /* needs: bit 0 overwriting, bit 1 adding */
	struct hd_mm *next;
};

static struct hd_mm *all;
static int fixed;

/* Creates a primitive, unless it needs more than the scratch. hd_mm_bytes considered all implementations, so there
 * should be enough. */
static int create(struct hd_mm_primitive *p, const struct hd_mm_shape *s, int sum, int swap, const char *want)
{
	if (!hd_mm_create(p, s, sum, swap, want))
		return 0;
	if ((int64_t)p->scratch_bytes <= hd_scratch_room())
		return 1;
	hd_mm_drop(p);
	return 0;
}

static int in_pieces(struct hd_mm *mm, int sum, struct hd_mm_pieces *pieces)
{
	if (pieces && hd_mm_pieces_taken(pieces) <= hd_scratch_room()) {
		mm->pieces[sum] = pieces;
		return 1;
	}
	hd_mm_pieces_destroy(pieces);
	return 0;
}

/* ---- products ---------------------------------------------------------------------------------- */

/* Creates the implementation named `want`, or the first that fits: a single primitive, or pieces whose scratchpads are
 * small. */
static int make(struct hd_mm *mm, int sum, int swap, const char *want)
{
	if (want && !strncmp(want, "own:", 4))
		return hd_mm_own_bytes(&mm->shape, want, omp_get_max_threads()) <= hd_scratch_room() &&
		       hd_mm_own_make(&mm->own[sum], &mm->shape, want);
	if (create(&mm->made[sum], &mm->shape, sum, swap, want))
		return 1;
	return !swap && in_pieces(mm, sum, hd_mm_pieces_of_scratch(&mm->shape, sum, want));
}

static int ensure_fixed(struct hd_mm *mm, int sum)
{
	if (hd_mm_in_tiles(&mm->shape) && make(mm, sum, 0, HD_MM_TILES))
		return 1;
	if (hd_mm_own_default(&mm->shape, 1) && make(mm, sum, 0, HD_MM_GEMM))
		return 1;
	return in_pieces(mm, sum, hd_mm_pieces_create(&mm->shape, sum));
}

/* Creates what was picked, if it does not exist yet. Values of picks are "ab/NAME", or "ba/NAME" with operands
 * swapped. */
static int ensure(struct hd_mm *mm, int sum)
{
	char key[HD_MM_KEY];
	struct hd_mm_pick *k;

	if (mm->made[sum].prim || mm->pieces[sum] || hd_mm_own_exists(&mm->own[sum]))
		return 1;
	if (fixed)
		return ensure_fixed(mm, sum);
	hd_mm_key_of(key, &mm->shape, sum);
	k = hd_mm_pick_find(key, strlen(key));
	if (k && strlen(k->value) > 3 && make(mm, sum, k->value[0] == 'b' && hd_mm_can_swap(&mm->shape), k->value + 3))
		return 1;
	return make(mm, sum, 0, NULL) || (hd_mm_own_default(&mm->shape, 1) && make(mm, sum, 0, HD_MM_GEMM)) ||
	       create(&mm->made[sum], &mm->shape, sum, 0, HD_MM_PLAIN_LOOPS);
}

/* ---- called by the device -------------------------------------------------------------------- */

static char *wanted_keys(void)
{
	char *text = hd_strdup("");
	char key[HD_MM_KEY];

	for (struct hd_mm *m = all; m; m = m->next)
		for (int sum = 0; sum < 2; sum++) {
			if (!(m->needs >> sum & 1))
				continue;
			hd_mm_key_of(key, &m->shape, sum);
			text = hd_mm_key_append(text, key, NULL);
		}
	return text;
}

static void forget(struct hd_mm *m, int sum)
{
	hd_mm_drop(&m->made[sum]);
	hd_mm_pieces_destroy(m->pieces[sum]);
	m->pieces[sum] = NULL;
	hd_mm_own_drop(&m->own[sum]);
}

/* Creates all that is needed once more, since implementations created before may not be those that were picked. */
static void prepare_all(void)
{
	for (struct hd_mm *m = all; m; m = m->next)
		for (int sum = 0; sum < 2; sum++) {
			forget(m, sum);
			if (m->needs >> sum & 1)
				ensure(m, sum);
		}
}

void hd_mm_fixed(int yes)
{
	fixed = yes;
}
int hd_mm_is_fixed(void)
{
	return fixed;
}

char *hd_mm_autotune(const char *known, const struct hd_exchange *x)
{
	char *wanted, *joined = NULL, *mine = NULL, *text;

	if (fixed) {
		prepare_all();
		return hd_strdup("");
	}
	wanted = wanted_keys();
	hd_mm_picks_read(known, 0);
	if (x) {
		joined = x->gather(x->ctx, wanted);
		mine = joined ? hd_mm_time(joined) : hd_strdup("");
		text = x->bcast(x->ctx, mine);
		hd_mm_picks_read(text, 1);
	} else {
		text = hd_mm_time(wanted);
	}
	prepare_all();
	free(mine);
	free(joined);
	free(wanted);
	return text;
}

struct hd_mm *hd_mm_get(const struct hd_mm_shape *s, int needs)
{
	int64_t bytes = hd_mm_bytes(s, needs, omp_get_max_threads());
	struct hd_mm *m;

	if (!hd_mm_has(s) || hd_scratch_join(bytes, "matmul", NULL) < 0)
		return NULL;
	for (m = all; m; m = m->next)
		if (!memcmp(&m->shape, s, sizeof(*s))) {
			m->users++;
			m->needs |= needs;
			return m;
		}
	m = hd_alloc(sizeof(*m));
	m->shape = *s;
	m->users = 1;
	m->needs = needs;
	m->next = all;
	all = m;
	return m;
}

void hd_mm_put(struct hd_mm *mm)
{
	struct hd_mm **at = &all;

	if (mm)
		hd_scratch_leave();
	if (!mm || --mm->users)
		return;
	while (*at != mm)
		at = &(*at)->next;
	*at = mm->next;
	forget(mm, 0);
	forget(mm, 1);
	free(mm);
}

const struct hd_mm_shape *hd_mm_shape_of(const struct hd_mm *mm)
{
	return &mm->shape;
}

int hd_mm_several(struct hd_mm_own *o, struct hd_mm *mm, int sum, int64_t several)
{
	int64_t taken = 0;

	*o = (struct hd_mm_own){ NULL, NULL, NULL };
	if (!ensure(mm, sum))
		return 0;
	if (mm->own[sum].tiles && (o->tiles = hd_amx_create(&mm->shape, several)))
		taken = hd_amx_taken(o->tiles);
	else if (mm->own[sum].gemm && (o->gemm = hd_gemm_create(&mm->shape, several, hd_gemm_best())))
		taken = hd_gemm_taken(o->gemm);
	if (taken > hd_scratch_room())
		hd_mm_own_drop(o);
	return hd_mm_own_exists(o);
}

int hd_mm_adds(struct hd_mm *mm)
{
	return ensure(mm, 1) && hd_mm_own_adds(&mm->own[1]);
}

void hd_mm_add(struct hd_mm *mm, const void *from, void *c, const void *a, const void *b, const void *bias)
{
	hd_mm_several_run(&mm->own[1], a, &(struct hd_mm_operands){ c, from, b, bias });
}

int hd_mm_run(struct hd_mm *mm, int sum, void *c, const void *a, const void *b, const void *bias)
{
	struct hd_mm_primitive *p = &mm->made[sum];
	void *const mem[HD_MM_OPERANDS] = {
		[HD_MM_A] = (void *)a, [HD_MM_B] = (void *)b, [HD_MM_C] = c, [HD_MM_BIAS] = (void *)bias
	};

	if (!ensure(mm, sum)) /* a shape that was never timed gets the first implementation offered */
		return HD_ENOTSUP;
	if (hd_mm_own_exists(&mm->own[sum])) {
		hd_mm_own_run(&mm->own[sum], hd_scratch(), sum ? c : NULL, mem, mm->shape.dtype[HD_MM_BIAS]);
		return 0;
	}
	if (mm->pieces[sum])
		return hd_mm_pieces_run(mm->pieces[sum], hd_scratch(), c, a, b, bias);
	return hd_mm_execute(p->prim, &p->bound, hd_scratch(), c, a, b, bias);
}

int hd_mm_in_fp32(void)
{
	struct hd_mm_shape s = { .ndim = 3,
				 .dtype = { HD_DTYPE_BF16, HD_DTYPE_BF16, HD_DTYPE_F32 },
				 .n = { 64, 64, 64 },
				 .stride = { { 64, 0, 1 }, { 0, 1, 64 }, { 64, 1, 0 } } };
	struct hd_mm_offers o;

	if (hd_mm_open(NULL) < 0 || !hd_mm_offers_begin(&o, &s, 0, 0))
		return 1;
	hd_mm_offers_end(&o);
	return 0;
}

const char *hd_mm_slow(uint32_t dtype)
{
	dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

	if (dtype != HD_DTYPE_BF16 || (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16)
		return NULL;
	return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core
		       ? "this processor has no instructions for bf16: its matmuls are slower than those of fp32"
		       : "this processor has no instructions for bf16: its matmuls compute in fp32";
}
