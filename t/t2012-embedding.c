/* SPDX-License-Identifier: Apache-2.0
 * embedding, position, rope.  If this broke, an id on the edge of a slice that two ranks claim,
 * or a position counted from the start of a slice, would make a sharded run differ
 * from a single one.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

/* Computes one side of <dy, A x> = <A' dy, x>, which holds if A' is the transpose of a linear A.  Exact for integers.
 * */
static double dot(const struct kt_buf *a, const struct kt_buf *b)
{
	double sum = 0;

	for (int64_t i = 0; i < a->count; i++)
		sum += kt_get(a, KT_CPU, i) * kt_get(b, KT_CPU, i);
	return sum;
}

static void embedding(const char *ids_spec, const char *w_spec, const char *x_spec, int ids_to)
{
	struct kt *f = KT_NEW(embedding, ""), *b = KT_NEW(embedding_dw, "");
	struct kt_buf *ids = kt_in(f, HD_DTYPE_I32, ids_spec), *w = kt_in(f, HD_DTYPE_F32, w_spec),
		      *x = kt_out(f, HD_DTYPE_F32, x_spec);
	struct kt_buf *ids2 = kt_in(b, HD_DTYPE_I32, ids_spec), *dx = kt_in(b, HD_DTYPE_F32, x_spec),
		      *dw = kt_out(b, HD_DTYPE_F32, w_spec);

	kt_ints(ids, 0, ids_to);
	kt_share(ids2, ids);
	kt_ints(w, -9, 9);
	kt_ints(dx, -9, 9);
	kt_ints(dw, -9, 9);
	KT_CHECK(f, 0, "embedding of %s by %s", w_spec, ids_spec);
	KT_CHECK(b, 0, "embedding_dw");
	near(dot(dx, x), dot(dw, w), 0, "embedding_dw is the transpose");
	b->run.acc = 1;
	KT_CHECK(b, 0, "embedding_dw, added");
	near(2 * dot(dx, x), dot(dw, w), 0, "... and is the sum of both");
	kt_threads(b, "embedding_dw");
	kt_free(f);
	kt_free(b);
}

static void position(const char *x_spec, const char *w_spec, int inplace)
{
	struct kt *f = KT_NEW(position, ""), *b = KT_NEW(position_dw, "");
	struct kt_buf *x = kt_in(f, HD_DTYPE_F32, x_spec), *w = kt_in(f, HD_DTYPE_F32, w_spec),
		      *y = kt_out(f, HD_DTYPE_F32, x_spec);
	struct kt_buf *dy = kt_in(b, HD_DTYPE_F32, x_spec), *dw = kt_out(b, HD_DTYPE_F32, w_spec);

	kt_ints(w, -9, 9);
	kt_ints(dy, -9, 9);
	kt_ints(dw, -9, 9);
	KT_CHECK(f, 0, "position of zeros, %s of %s", x_spec, w_spec);
	KT_CHECK(b, 0, "position_dw");
	near(dot(dy, y), dot(dw, w), 0, "position_dw is the transpose");
	b->run.acc = 1;
	KT_CHECK(b, 0, "position_dw, added");
	kt_threads(b, "position_dw");
	kt_ints(x, -9, 9);
	if (inplace)
		kt_inplace(y, x);
	KT_CHECK(f, 0, "position%s", inplace ? " in place" : "");
	kt_free(f);
	kt_free(b);
}

/* A rotation has three roundings per element, besides those of the cosine and sine. */
static void rope(const char *spec, int inplace)
{
	struct kt *t = KT_NEW(rope, "theta=500"), *back = KT_NEW(rope, "theta=500 inverse=1");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec), *y = kt_out(t, HD_DTYPE_F32, spec),
		      *z = kt_in(back, HD_DTYPE_F32, spec);
	struct kt_buf *x1 = kt_out(back, HD_DTYPE_F32, spec);
	double worst = 0;

	kt_reals(x, -1, 1);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "rope %s", spec);
	kt_share(z, y);
	KT_CHECK(back, kt_tol(HD_DTYPE_F32, 4), "rope inverse");
	for (int64_t i = 0; i < x->count; i++)
		worst = fmax(worst, fabs(kt_get(x1, KT_REF, i) - kt_get(x, KT_REF, i)));
	near(worst, 0, 1e-14, "the inverse rotates back, in double");
	kt_threads(t, "rope");
	if (inplace) {
		kt_inplace(y, x);
		KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "rope in place");
	}
	kt_free(t);
	kt_free(back);
}

/* Scaled angles, and dims that do not rotate.  If a rotation also stretches, its derivative is not its inverse. */
static const char *const scaled[] = {
	"",
	"theta=100 rotary=4",
	"theta=100 rotary=0",
	"scaling=linear factor=4",
	"scaling=dynamic factor=2 original=5 length=9",
	"scaling=dynamic factor=2 original=9 length=9",
	"theta=50 scaling=llama3 factor=8 low=1 high=4 original=20",
	"theta=50 scaling=yarn factor=4 original=30 beta_fast=3 beta_slow=1 attention=1.3 rotary=4",
	"theta=50 scaling=yarn factor=4 original=30 beta_fast=3 beta_slow=1 truncate=0",
};

static void rope_scaled(const char *attr)
{
	const char *spec = "batch=2,seq=3@4/9,heads=2,head_dim=12";
	struct kt *t = KT_NEW(rope, attr), *other = KT_NEW(rope, "theta=50");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec), *y = kt_in(other, HD_DTYPE_F32, spec);

	kt_out(t, HD_DTYPE_F32, spec);
	kt_out(other, HD_DTYPE_F32, spec);
	kt_reals(x, -1, 1);
	kt_reals(y, -1, 1);
	KT_CHECK(other, kt_tol(HD_DTYPE_F32, 4), "rope next to one with %s", attr);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "rope %s", attr);
	kt_free(t);
	kt_free(other);
}

static void rope_gradient(const char *attr)
{
	const char *spec = "batch=2,seq=3@4/9,heads=2,head_dim=6";
	char inverse[200];
	struct kt *t = KT_NEW(rope, attr), *back;
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec), *y = kt_out(t, HD_DTYPE_F32, spec), *dy, *dx;

	snprintf(inverse, sizeof(inverse), "%s inverse=1", attr);
	back = KT_NEW(rope, inverse);
	dy = kt_in(back, HD_DTYPE_F32, spec);
	dx = kt_out(back, HD_DTYPE_F32, spec);
	kt_reals(x, -1, 1);
	kt_reals(dy, -1, 1);
	is_int(kt_run(back, KT_REF), 0, "backward runs in double");
	kt_gradient(t, x, y, dy, dx, attr);
	kt_free(t);
	kt_free(back);
}

static void rope_positions(void)
{
	struct kt *whole = KT_NEW(rope, ""), *piece = KT_NEW(rope, "");
	struct kt_buf *x = kt_in(whole, HD_DTYPE_F32, "batch=1,seq=9,heads=2,head_dim=6");
	struct kt_buf *y = kt_out(whole, HD_DTYPE_F32, "batch=1,seq=9,heads=2,head_dim=6");
	struct kt_buf *x4 = kt_in(piece, HD_DTYPE_F32, "batch=1,seq=5@4/9,heads=2,head_dim=6");
	struct kt_buf *y4 = kt_out(piece, HD_DTYPE_F32, "batch=1,seq=5@4/9,heads=2,head_dim=6");
	int same = 1;

	kt_reals(x, -1, 1);
	for (int i = 0; i < 60; i++)
		kt_set(x4, i, kt_get(x, KT_CPU, 48 + i));
	ok(!kt_run(whole, KT_CPU) && !kt_run(piece, KT_CPU), "rope runs on a whole sequence and on a slice");
	for (int i = 0; i < 60; i++)
		same &= kt_get(y4, KT_CPU, i) == kt_get(y, KT_CPU, 48 + i);
	ok(same, "... and a slice is rotated by its global positions");
	kt_free(whole);
	kt_free(piece);
}

static void refusals(void)
{
	struct kt *e = KT_NEW(embedding, ""), *p = KT_NEW(position, ""), *r = KT_NEW(rope, "");

	kt_in(e, HD_DTYPE_I32, "batch=2,seq=3");
	kt_in(e, HD_DTYPE_F32, "vocab=9,embed=5");
	kt_out(e, HD_DTYPE_F32, "batch=2,seq=3,embed=4");
	kt_refused(e, "embedding: rows of the table have 5 of dim embed, those of x 4 of dim embed");
	kt_in(p, HD_DTYPE_F32, "batch=2,seq=3@6/9,embed=5");
	kt_in(p, HD_DTYPE_F32, "position=8,embed=5");
	kt_out(p, HD_DTYPE_F32, "batch=2,seq=3@6/9,embed=5");
	kt_refused(p, "position: the sequence needs rows 6 to 9 of the 8 in input 1");
	kt_in(r, HD_DTYPE_F32, "seq=3,heads=2,head_dim=5");
	kt_out(r, HD_DTYPE_F32, "seq=3,heads=2,head_dim=5");
	kt_refused(r, "rope: dim head_dim has 5 elements, not divisible by 2");
	kt_free(e);
	kt_free(p);
	kt_free(r);
	r = KT_NEW(rope, "rotary=8");
	kt_in(r, HD_DTYPE_F32, "seq=3,heads=2,head_dim=6");
	kt_out(r, HD_DTYPE_F32, "seq=3,heads=2,head_dim=6");
	kt_refused(r, "rope: rotary is 8, it must be even and at most head_dim = 6");
	kt_free(r);
}

int main(void)
{
	embedding("batch=2,seq=5", "vocab=7,embed=33", "batch=2,seq=5,embed=33", 6);
	embedding("batch=2,seq=5", "vocab=3@4/11,embed=33", "batch=2,seq=5,embed=33", 10);
	embedding("batch=4,seq=35", "vocab=40@20/50,embed=501@3/999", "batch=4,seq=35,embed=501@3/999", 49);
	/* like ids of real text: few ids with long lists of tokens; lists of 32, 33 and 97 */
	embedding("batch=2,seq=151", "vocab=3,embed=36", "batch=2,seq=151,embed=36", 2);
	embedding("batch=1,seq=32", "vocab=2,embed=5", "batch=1,seq=32,embed=5", 0);
	embedding("batch=1,seq=33", "vocab=2,embed=5", "batch=1,seq=33,embed=5", 0);
	embedding("batch=1,seq=97", "vocab=2,embed=5", "batch=1,seq=97,embed=5", 0);
	/* row numbers of more than 8 bits, which cuda sorts in two launches; pieces that end where an id does; more
	 * tokens than a block */
	embedding("batch=2,seq=301", "vocab=600@100/1300,embed=20", "batch=2,seq=301,embed=20", 1299);
	embedding("batch=2,seq=2100", "vocab=300,embed=8", "batch=2,seq=2100,embed=8", 299);
	position("batch=3,seq=5,embed=7", "position=8,embed=7", 1);
	position("batch=3,seq=5@2/9,embed=7", "position=8@1/12,embed=7", 0);
	position("batch=3,seq=50@30/90,embed=401", "position=90,embed=401", 1);
	rope("batch=2,seq=5@3/9,heads=3,head_dim=6", 1);
	rope("batch=2,seq=35@300/900,heads=5@5/10,head_dim=64", 1);
	for (size_t i = 0; i < HD_LEN(scaled); i++) {
		rope_scaled(scaled[i]);
		rope_gradient(scaled[i]);
	}
	rope_positions();
	refusals();
	return done();
}
