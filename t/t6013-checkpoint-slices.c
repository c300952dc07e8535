/* SPDX-License-Identifier: Apache-2.0
 * Where a rank's slice of a parameter is stored in a file of another orientation, with padding and cuts on any dim.
 * Also: how states that are terms of a sum are read by another number of members, and models in several files.  A wrong
 * offset would silently give a different model.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/base/rng.h"
#include <unistd.h>

static char tmp[] = "/tmp/heddle-t6013.XXXXXX";

static char *at(const char *name)
{
	return hd_format("%s/%s", tmp, name);
}

/* -- regions ------------------------------------------------------------------------------------------------------ */
#define ROWS_BEFORE 2
#define COLS_BEFORE 3

/* Fills in slice number `part` of `parts` along dim `cut`, which is padded to a multiple of `parts`. */
static void extent(struct hd_extent *x, int ndim, const int64_t *whole, int cut, int parts, int part)
{
	int64_t step = 1;

	x->ndim = ndim;
	for (int d = ndim - 1; d >= 0; d--) {
		x->whole[d] = whole[d];
		x->local[d] = d == cut ? (whole[d] + parts - 1) / parts : whole[d];
		x->off[d] = d == cut ? part * x->local[d] : 0;
		x->n[d] = whole[d] - x->off[d] < x->local[d] ? whole[d] - x->off[d] : x->local[d];
		x->n[d] = x->n[d] > 0 ? x->n[d] : 0;
		x->off[d] = x->n[d] ? x->off[d] : 0;
		x->stride[d] = step;
		step *= x->local[d];
	}
}

/* Returns the index in the parameter of element `local` of the slice, or -1 for padding. */
static int64_t global_of(const struct hd_extent *x, int64_t local)
{
	int64_t g = 0;

	for (int d = 0; d < x->ndim; d++) {
		int64_t i = local / x->stride[d] % x->local[d];

		if (i >= x->n[d])
			return -1;
		g = g * x->whole[d] + x->off[d] + i;
	}
	return g;
}

static int64_t count(const struct hd_extent *x)
{
	int64_t n = 1;

	for (int d = 0; d < x->ndim; d++)
		n *= x->local[d];
	return n;
}

static void region(struct hd_hf_region *r, const struct hd_extent *x, int ndim, int split, int transpose)
{
	int64_t rows = 1, cols = 1;

	*r = (struct hd_hf_region){ .name = "t", .ndim = ndim, .split = split, .transpose = transpose };
	for (int d = 0; d < x->ndim; d++)
		*(ndim == 1 || d < split ? &rows : &cols) *= x->whole[d];
	r->at[0] = ROWS_BEFORE;
	r->at[1] = COLS_BEFORE;
	r->shape[0] = (transpose ? cols : rows) + ROWS_BEFORE + 1;
	r->shape[1] = (transpose ? rows : cols) + COLS_BEFORE + 2;
}

/* Writes all slices, reads the complete file, and reads it again with another cut.  Returns whether all is right. */
static int round_trip(int ndim, const int64_t *whole, const struct hd_hf_region *r, int cut, int parts)
{
	int64_t n = r->shape[0] * (r->ndim == 2 ? r->shape[1] : 1), cols = 1, wrong = 0;
	struct hd_tensorfile *f = hd_tensorfile_plan();
	char *path = at("region");
	struct hd_err err = { 0 };
	struct hd_extent x;
	float *all = hd_alloc((size_t)n * sizeof(*all)), *mine;

	hd_tensorfile_add(f, "t", HD_DTYPE_F32, r->ndim, r->shape);
	hd_tensorfile_create(f, path, &err);
	for (int part = 0; part < parts; part++) {
		extent(&x, ndim, whole, cut, parts, part);
		mine = hd_alloc((size_t)count(&x) * sizeof(*mine));
		for (int64_t i = 0; i < count(&x); i++)
			mine[i] = (float)(global_of(&x, i) + 1); /* padding: 0 */
		hd_region_move(&(struct hd_movement){ f, "t", HD_DTYPE_F32, 1 }, r, &x, mine, &err);
		free(mine);
	}
	hd_tensorfile_close(f);
	hd_tensorfile_read(path, &f, &err);
	hd_tensorfile_load(f, "t", HD_DTYPE_F32, all, NULL, NULL, NULL, &err);
	for (int d = r->split; d < ndim && r->ndim == 2; d++)
		cols *= whole[d];
	for (int64_t g = 0; g < (whole[0] * whole[1] * whole[2]); g++) {
		int64_t row = g / cols, col = g % cols;
		int64_t i = r->transpose ? col : row, k = r->transpose ? row : col;

		i = r->ndim == 1 ? ROWS_BEFORE + g : (i + ROWS_BEFORE) * r->shape[1] + k + COLS_BEFORE;
		wrong += all[i] != (float)(g + 1);
		all[i] = 0;
	}
	for (int64_t i = 0; i < n; i++)
		wrong += all[i] != 0; /* nothing outside the region */
	extent(&x, ndim, whole, (cut + 1) % ndim, 2, 1);
	mine = hd_alloc((size_t)count(&x) * sizeof(*mine));
	hd_region_move(&(struct hd_movement){ f, "t", HD_DTYPE_F32, 0 }, r, &x, mine, &err);
	for (int64_t i = 0; i < count(&x); i++)
		wrong += mine[i] != (float)(global_of(&x, i) + 1);
	hd_tensorfile_close(f);
	free(all);
	free(mine);
	free(path);
	if (err.code)
		note("%s", err.text);
	return !wrong && !err.code;
}

static void regions(void)
{
	static const int64_t whole[] = { 4, 6, 5 };

	for (int split = 1; split <= 3; split++)
		for (int transpose = 0; transpose < 2; transpose++)
			for (int ndim = 1; ndim <= 2; ndim++) {
				int good = 1;
				struct hd_hf_region r;
				struct hd_extent x;

				if (ndim == 1 && (transpose || split < 3))
					continue;
				extent(&x, 3, whole, 0, 1, 0);
				region(&r, &x, ndim, split, transpose);
				for (int cut = 0; cut < 3; cut++)
					for (int parts = 1; parts <= 7; parts++)
						good &= round_trip(3, whole, &r, cut, parts);
				ok(good, "%d dims stored, %d as rows%s: any dim may be cut in 1 to 7 slices", ndim,
				   split, transpose ? ", transposed" : "");
			}
}

/* -- terms of sums --------------------------------------------------------------------------------- */
#define ELEMENTS 5

struct bench { /* the plan and the program of one rank, with a single state */
	struct hd_plan plan;
	struct hd_program program;
	struct axis axis;
	struct dim dim;
	struct tensor t, *tensors[1];
	struct storage storage;
	int64_t offsets[1];
	float data[ELEMENTS];
};

static void bench(struct bench *b, int64_t members, int64_t rank, uint32_t relayout)
{
	memset(b, 0, sizeof(*b));
	b->axis = (struct axis){ .v = { .size = sizeof(b->axis.v), .name = "a", .n = members }, .stride = 1 };
	b->dim.v = (struct hd_dim){ sizeof(b->dim.v), "x", ELEMENTS };
	b->dim.padded = ELEMENTS;
	b->t.v = (struct hd_tensor){
		.name = "plugin.error.w", .spec = "x", .ndim = 1, .dtype = HD_DTYPE_F32, .what = HD_TENSOR_STATE
	};
	b->t.dims[0] = &b->dim.v;
	b->t.local[0] = ELEMENTS;
	b->t.step = 1;
	b->t.on_reshard = relayout;
	b->t.at.on[0] = (struct hd_place){ .kind = HD_PLACE_PARTIAL };
	b->tensors[0] = &b->t;
	b->plan.tensors = b->tensors;
	b->plan.ntensors = 1;
	b->plan.axes[0] = &b->axis;
	b->plan.naxes = 1;
	b->storage.root = &b->t;
	b->program = (struct hd_program){
		.plan = &b->plan, .rank = rank, .at = &b->storage, .offsets = b->offsets, .persistent = (char *)b->data
	};
}

static void write_pieces(const char *path, int64_t members)
{
	struct hd_err err = { 0 };

	for (int64_t m = 0; m < members; m++) {
		struct hd_tensorfile *f = hd_tensorfile_plan();
		struct bench b;

		bench(&b, members, m, HD_RESHARD_SUM);
		for (int i = 0; i < ELEMENTS; i++)
			b.data[i] = (float)(100 * (m + 1) + i);
		hd_states_plan(&b.program, f, &err);
		(m ? hd_tensorfile_open : hd_tensorfile_create)(f, path, &err);
		hd_states_write(&b.program, f, &err);
		hd_tensorfile_close(f);
	}
	ok(!err.code, "%lld members write their terms: %s", (long long)members, err.text);
}

/* Returns element 3 of the state that member m of n reads. */
static double read_piece(const char *path, int64_t n, int64_t m, uint32_t relayout, struct hd_err *err)
{
	struct bench b;

	bench(&b, n, m, relayout);
	for (int i = 0; i < ELEMENTS; i++)
		b.data[i] = -1;
	hd_states_read(&b.program, path, err);
	return b.data[3];
}

static void pieces(void)
{
	char *path = at("pieces");
	struct hd_err err = { 0 };

	write_pieces(path, 2);
	near(read_piece(path, 2, 0, HD_RESHARD_SUM, &err), 103, 0,
	     "the same number of members: the first reads its own term");
	near(read_piece(path, 2, 1, HD_RESHARD_REFUSE, &err), 203, 0, "... and so does the second");
	near(read_piece(path, 1, 0, HD_RESHARD_SUM, &err), 306, 0, "a single member reads the sum");
	near(read_piece(path, 3, 0, HD_RESHARD_SUM, &err), 306, 0, "the first of three members reads the sum");
	near(read_piece(path, 3, 1, HD_RESHARD_SUM, &err), 0, 0, "... the second reads zero");
	near(read_piece(path, 3, 2, HD_RESHARD_SUM, &err), 0, 0, "... the third reads zero");
	near(read_piece(path, 3, 0, HD_RESHARD_ZERO, &err), 0, 0, "with HD_RESHARD_ZERO all read zero");
	ok(!err.code, "%s", "none of these reads is an error");
	read_piece(path, 3, 0, HD_RESHARD_REFUSE, &err);
	ok(strstr(err.text, "plugin.error.w was saved by 2 members, this run has 3"),
	   "with HD_RESHARD_REFUSE the read is refused: %s", err.text);
	err.code = 0;
	write_pieces(path, 1);
	near(read_piece(path, 1, 0, HD_RESHARD_SUM, &err), 103, 0, "a single member reads what it wrote");
	near(read_piece(path, 2, 0, HD_RESHARD_SUM, &err), 103, 0, "the first of two members reads all of it");
	near(read_piece(path, 2, 1, HD_RESHARD_SUM, &err), 0, 0, "... the second reads zero");
	free(path);
}

/* -- several files --------------------------------------------------------------------------------- */
static int open_job(struct hd_job *j, struct hd_err *err)
{
	char *text = hd_format("[model]\nlayers = 2\nheads = 2\nembed = 16\n[data]\ntrain = none\n[train]\nseq = 8\n"
			       "global_batch = 1\nsteps = 1\nthreads = 1\n[checkpoint]\ndir = %s/ck\n",
			       tmp);
	struct hd_conf *c = NULL;

	HD_TRY(hd_comm_open(&j->world, err));
	j->threads = 1;
	HD_TRY(hd_conf_parse("test.ini", text, NULL, 0, &c, err));
	free(text);
	return hd_job_open(j, c, 1u << HD_JOB_TRAIN, NULL, err);
}

static uint64_t hash_of(const struct hd_job *j)
{
	return hd_weights_hash(hd_job_first_program(j), hd_weights_part(hd_job_first_program(j)));
}

static void several_files(void)
{
	struct hd_job j = { 0 };
	struct hd_progress p = { 7, 7, 112 }, q = { 0, 0, 0 };
	struct hd_err err = { 0 };
	char *dir = at("ck"), *index = at("ck/step-00000007/model.safetensors.index.json");
	char *first = at("ck/step-00000007/model-00001-of-00003.safetensors");
	uint64_t hash, part;

	setenv("XDG_CACHE_HOME", tmp, 1);
	if (!ok(open_job(&j, &err) >= 0, "a model is opened: %s", err.text))
		return;
	hd_init_weights(hd_job_first_program(&j), 1, &part);
	hash = hash_of(&j);
	ok(hash == hd_weights_hash(hd_job_first_program(&j), part), "%s",
	   "weights are hashed while they are initialized");
	hd_checkpoint_file_bytes = 15000;
	ok(hd_checkpoint_save(&j, &p, &err) >= 0, "a model larger than the limit of a file is saved: %s", err.text);
	ok(!access(index, R_OK), "%s", "... with an index");
	ok(!access(first, R_OK), "%s", "... and several files");
	hd_init_weights(hd_job_first_program(&j), 2, NULL);
	ok(hash != hash_of(&j), "%s", "weights of another seed have another hash");
	ok(hd_checkpoint_load(&j, dir, &q, &err) >= 0, "the checkpoint is loaded: %s", err.text);
	ok(hash == hash_of(&j), "%s", "... with the same weights");
	is_int(q.step, 7, "... its step");
	is_int(q.tokens, 112, "... and its number of tokens, whatever train.seq is now");
	unlink(first);
	hd_checkpoint_weights(&j, dir, &err);
	ok(strstr(err.text, "model-00001-of-00003"), "a missing file is named: %s", err.text);
	hd_job_close(&j);
	free(dir);
	free(index);
	free(first);
}

int main(void)
{
	struct hd_err ignored = { 0 };

	if (!mkdtemp(tmp))
		skip_all("no temporary directory");
	hd_log_init(0, HD_LOG_ERROR);
	regions();
	pieces();
	several_files();
	hd_dir_remove(tmp, &ignored);
	return done();
}
