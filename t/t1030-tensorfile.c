/* SPDX-License-Identifier: Apache-2.0
 * Checkpoint files: many processes write slices, transposed or padded in memory, into one file.  A wrong offset would
 * be found weeks later, as a model that got worse; a truncated file must never be read as weights.  Each slice is
 * compared with a copy made element by element.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/file/atomic_file.h"
#include "engine/tensorfile/tensorfile.h"
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char tmp[] = "/tmp/heddle-t1030.XXXXXX";
static uint32_t seed = 12345;

static int64_t pick(int64_t from, int64_t to)
{
	seed = seed * 1664525u + 1013904223u;
	return from + (int64_t)(seed >> 8) % (to - from + 1);
}

static const char *at(const char *name)
{
	static char path[4][256];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", tmp, name);
	return path[turn];
}

/* A random tensor, a random slice of it, and a memory layout with permuted dims and gaps. */
struct example {
	int ndim;
	int64_t shape[4], off[4], n[4], stride[4];
	int64_t total, room; /* elements of the tensor; elements of the memory */
};

static struct example example(int64_t largest)
{
	struct example e = { .ndim = (int)pick(0, 4), .total = 1, .room = 1 };
	int order[4] = { 0, 1, 2, 3 };

	for (int i = 0; i < e.ndim; i++) {
		int j = (int)pick(0, i), k = order[i];

		order[i] = order[j];
		order[j] = k;
		e.shape[i] = pick(1, largest);
		e.off[i] = pick(0, 2) ? pick(0, e.shape[i] - 1) : 0;
		e.n[i] = pick(0, 2) ? e.shape[i] - e.off[i] : pick(0, e.shape[i] - e.off[i]);
		e.total *= e.shape[i];
	}
	if (pick(0, 2) == 0) {
		for (int i = 0; i < e.ndim; i++)
			order[i] = e.ndim - 1 - i;
	}
	for (int i = 0; i < e.ndim; i++) {
		e.stride[order[i]] = e.room;
		e.room = e.room * (e.n[order[i]] + (pick(0, 3) ? 0 : pick(0, 2)));
	}
	e.room = e.room ? e.room : 1;
	return e;
}

/* Calls step for each element of the slice, with its index in the tensor and its index in memory. */
static void each(const struct example *e, void (*step)(int64_t in_file, int64_t in_mem, void *a, void *b), void *a,
		 void *b)
{
	int64_t count = 1, i[4];

	for (int d = 0; d < e->ndim; d++)
		count *= e->n[d];
	for (int64_t k = 0; k < count; k++) {
		int64_t left = k, in_file = 0, in_mem = 0;

		for (int d = e->ndim - 1; d >= 0; d--) {
			i[d] = left % e->n[d];
			left /= e->n[d];
		}
		for (int d = 0; d < e->ndim; d++) {
			in_file = in_file * e->shape[d] + e->off[d] + i[d];
			in_mem += i[d] * e->stride[d];
		}
		step(in_file, in_mem, a, b);
	}
}

static void copy_out(int64_t in_file, int64_t in_mem, void *file, void *mem)
{
	((float *)file)[in_file] = ((float *)mem)[in_mem];
}

static void copy_in(int64_t in_file, int64_t in_mem, void *file, void *mem)
{
	((float *)mem)[in_mem] = ((float *)file)[in_file];
}

/* Stores a tensor of zeros with the slice written over it, and reads it back completely and by the slice.  Returns 1 if
 * both are right. */
static int round_trip(const struct example *e)
{
	struct hd_tensorfile *f = hd_tensorfile_plan(), *r = NULL;
	struct hd_err err = { .code = 0 };
	float *mem = hd_alloc((size_t)e->room * 4), *back = hd_alloc((size_t)e->room * 4);
	float *want = hd_alloc((size_t)e->total * 4), *got = hd_alloc((size_t)e->total * 4);
	float *again = hd_alloc((size_t)e->room * 4);
	int right;

	for (int64_t i = 0; i < e->room; i++) {
		mem[i] = (float)(i + 1);
		back[i] = again[i] = -1;
	}
	each(e, copy_out, want, mem);
	hd_tensorfile_add(f, "first", HD_DTYPE_F32, 1, (int64_t[]){ 5 });
	hd_tensorfile_add(f, "x", HD_DTYPE_F32, e->ndim, e->shape);
	hd_tensorfile_add(f, "last", HD_DTYPE_F32, 1, (int64_t[]){ 3 });
	right = !hd_tensorfile_create(f, at("random"), &err) &&
		!hd_tensorfile_write(f, "x", HD_DTYPE_F32, mem, e->off, e->n, e->stride, &err) &&
		!hd_tensorfile_read(at("random"), &r, &err) &&
		!hd_tensorfile_load(r, "x", HD_DTYPE_F32, got, NULL, NULL, NULL, &err) &&
		!hd_tensorfile_load(r, "x", HD_DTYPE_F32, back, e->off, e->n, e->stride, &err);
	if (!right)
		note("%s", err.text);
	each(e, copy_in, want, again);
	right = right && !memcmp(want, got, (size_t)e->total * 4) && !memcmp(back, again, (size_t)e->room * 4);
	hd_tensorfile_close(f);
	hd_tensorfile_close(r);
	free(mem);
	free(back);
	free(want);
	free(got);
	free(again);
	return right;
}

static void test_slices(void)
{
	struct example big = { .ndim = 2,
			       .shape = { 1300, 700 },
			       .n = { 1300, 700 },
			       .stride = { 1, 1300 },
			       .total = 1300 * 700,
			       .room = 1300 * 700 };
	struct example wide = { .ndim = 2,
				.shape = { 3, 600000 },
				.off = { 1, 7 },
				.n = { 2, 599000 },
				.stride = { 1, 2 },
				.total = 1800000,
				.room = 1198000 };
	int wrong = 0;

	for (int i = 0; i < 3000; i++) {
		struct example e = example(i % 2 ? 9 : 3);

		wrong += !round_trip(&e);
	}
	is_int(wrong, 0, "3000 random slices, transposed, padded or empty, are read as written");
	ok(round_trip(&big), "a transposed matrix larger than the buffer is read as written");
	ok(round_trip(&wide), "rows longer than the buffer are read as written");
}

/* A logical [out, in] is a third of the stored [in, 3 * out]; two processes write each third. */
static void test_writers(void)
{
	enum { IN = 40, OUT = 24 };
	struct hd_err err = { .code = 0 };
	struct hd_tensorfile *f;
	float *all = hd_alloc(IN * 3 * OUT * 4);
	int wrong = 0, status, failed = 0;

	for (int rank = 0; rank < 7; rank++) {
		f = hd_tensorfile_plan();
		hd_tensorfile_add(f, "qkv", HD_DTYPE_F32, 2, (int64_t[]){ IN, 3 * OUT });
		hd_tensorfile_meta(f, "format", "pt");
		if (!rank) {
			failed |= hd_tensorfile_create(f, at("shared"), &err);
		} else if (!fork()) {
			int part = (rank - 1) / 2, half = (rank - 1) % 2;
			float mine[OUT / 2 * IN];

			for (int o = 0; o < OUT / 2; o++)
				for (int i = 0; i < IN; i++)
					mine[o * IN + i] = (float)(part * 10000 + (half * OUT / 2 + o) * 100 + i);
			failed = hd_tensorfile_open(f, at("shared"), &err) ||
				 hd_tensorfile_write(f, "qkv", HD_DTYPE_F32, mine,
						     (int64_t[]){ 0, part * OUT + half * OUT / 2 },
						     (int64_t[]){ IN, OUT / 2 }, (int64_t[]){ 1, IN }, &err) ||
				 hd_tensorfile_sync(f, &err);
			_exit(failed);
		}
		hd_tensorfile_close(f);
	}
	while (wait(&status) > 0)
		failed |= status;
	ok(!failed, "six processes write transposed pieces of one tensor");
	failed = hd_tensorfile_read(at("shared"), &f, &err) ||
		 hd_tensorfile_load(f, "qkv", HD_DTYPE_F32, all, NULL, NULL, NULL, &err);
	for (int i = 0; i < IN && !failed; i++)
		for (int o = 0; o < 3 * OUT; o++)
			wrong += all[i * 3 * OUT + o] != (float)(o / OUT * 10000 + o % OUT * 100 + i);
	is_int(wrong + failed, 0, "... and the tensor is complete");
	hd_tensorfile_close(f);
	free(all);
}

/* Readers map files into memory, so an element of n bytes must be at a multiple of n, whatever was added first. */
static int is_aligned(const char *path)
{
	struct hd_err err = { .code = 0 };
	size_t n = 0;
	char *text = hd_file_read(path, &n, &err);
	uint64_t length = 0;
	json_t *header, *tensor;
	const char *name;
	int all = text != NULL && n > 8;

	if (all)
		memcpy(&length, text, 8);
	header = all ? json_loadb(text + 8, length, 0, NULL) : NULL;
	all = header != NULL;
	json_object_foreach(header, name, tensor) {
		const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
		json_int_t begin = json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 0));

		all &= (8 + (int64_t)length + begin) % (!strcmp(dtype, "BF16") ? 2 : 8) == 0;
	}
	json_decref(header);
	free(text);
	return all;
}

static void test_types(void)
{
	const float given[] = { 1.0f, 1.00390625f, 1.01171875f, -3.3895314e38f, NAN, 0x1p-133f, -0.0f, INFINITY };
	const float want[] = { 1.0f, 1.0f, 1.015625f, -3.3895314e38f, NAN, 0x1p-133f, -0.0f, INFINITY };
	struct hd_tensorfile *f = hd_tensorfile_plan();
	struct hd_err err = { .code = 0 };
	double d = 1.0 / 3, d2 = 0;
	int64_t big = INT64_MAX, big2 = 0, shape[8];
	float got[8];
	uint32_t dtype;
	int wrong = 0, ndim = 9;

	hd_tensorfile_add(f, "half", HD_DTYPE_BF16, 1, (int64_t[]){ 8 });
	hd_tensorfile_add(f, "one half", HD_DTYPE_BF16, 0, NULL);
	hd_tensorfile_add(f, "number", HD_DTYPE_F64, 0, NULL);
	hd_tensorfile_add(f, "count", HD_DTYPE_I64, 1, (int64_t[]){ 1 });
	is_int(hd_tensorfile_add(f, "half", HD_DTYPE_F32, 0, NULL), HD_EINVAL,
	       "a second tensor of the same name is refused");
	is_int(hd_tensorfile_add(f, "huge", HD_DTYPE_F32, 2, (int64_t[]){ INT64_MAX / 2, 8 }), HD_EINVAL,
	       "a size beyond 64 bits is refused");
	ok(!hd_tensorfile_create(f, at("types"), &err) &&
		   !hd_tensorfile_write(f, "half", HD_DTYPE_F32, given, NULL, NULL, NULL, &err) &&
		   !hd_tensorfile_write(f, "number", HD_DTYPE_F64, &d, NULL, NULL, NULL, &err) &&
		   !hd_tensorfile_write(f, "count", HD_DTYPE_I64, &big, NULL, NULL, NULL, &err),
	   "tensors of several types are written");
	hd_tensorfile_close(f);
	ok(is_aligned(at("types")), "each tensor begins at a multiple of its element's width");
	if (!ok(!hd_tensorfile_read(at("types"), &f, &err), "the file is opened"))
		return;
	ok(!hd_tensorfile_load(f, "half", HD_DTYPE_F32, got, NULL, NULL, NULL, &err) &&
		   !hd_tensorfile_load(f, "number", HD_DTYPE_F64, &d2, NULL, NULL, NULL, &err) &&
		   !hd_tensorfile_load(f, "count", HD_DTYPE_I64, &big2, NULL, NULL, NULL, &err),
	   "... and its tensors are read");
	for (int i = 0; i < 8; i++)
		wrong += isnan(want[i]) ? !isnan(got[i])
					: fabsf(got[i] - want[i]) > fabsf(want[i]) / 500 && got[i] != want[i];
	is_int(wrong, 0, "bf16 keeps special values");
	ok(got[1] == want[1] && got[2] == want[2] && signbit(got[6]), "bf16 rounds to nearest even");
	ok(d == d2 && big == big2, "64-bit types are exact, although 16-bit ones were added first");
	ok(hd_tensorfile_find(f, "half", &dtype, &ndim, shape) && dtype == HD_DTYPE_BF16 && ndim == 1 &&
		   shape[0] == 8 && !hd_tensorfile_find(f, "whole", &dtype, &ndim, shape) &&
		   hd_tensorfile_count(f) == 4,
	   "tensors are found by name and counted");
	is_int(hd_tensorfile_load(f, "number", HD_DTYPE_F32, got, NULL, NULL, NULL, &err), HD_ENOTSUP,
	       "a conversion from F64 to F32 is refused");
	err.code = 0;
	hd_tensorfile_load(f, "half", HD_DTYPE_F32, got, (int64_t[]){ 5 }, (int64_t[]){ 4 }, NULL, &err);
	ok(strstr(err.text, "/types: tensor half: dim 0: 4 elements from 5 on, but it has 8"), "%s", err.text);
	for (int i = 0; i < 3; i++) {
		static const char *const said[] = { "4 elements from -1 on", "-4 elements from 1 on",
						    "0 elements from 9 on" };
		int64_t from = (int64_t[]){ -1, 1, 9 }[i], n = (int64_t[]){ 4, -4, 0 }[i];

		err.code = 0;
		hd_tensorfile_load(f, "half", HD_DTYPE_F32, got, &from, &n, NULL, &err);
		ok(strstr(err.text, said[i]), "%s", err.text);
	}
	hd_tensorfile_close(f);
}

/* Writes a file with this header and this many bytes of data.  Returns the error of reading it, without the path. */
static const char *reading(const char *header, int64_t length, int data)
{
	static struct hd_err err;
	struct hd_tensorfile *r = NULL;
	FILE *f = fopen(at("bad"), "w");
	uint64_t n = length < 0 ? strlen(header) : (uint64_t)length;

	fwrite(&n, 8, 1, f);
	fputs(header, f);
	for (int i = 0; i < data; i++)
		fputc(i, f);
	fclose(f);
	memset(&err, 0, sizeof(err));
	if (!hd_tensorfile_read(at("bad"), &r, &err))
		strcpy(err.text, "/bad: accepted");
	hd_tensorfile_close(r);
	return strstr(err.text, "/bad") ? strstr(err.text, "/bad") + 6 : err.text;
}

static void test_bad_files(void)
{
#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define NOBODYS "\"n\":{\"dtype\":\"F9\",\"shape\":[2],\"data_offsets\":[0,3]}"
#define B(from, to) "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #from "," #to "]}"
	struct hd_tensorfile *r = NULL;
	struct hd_err err = { .code = 0 };

	is_str(reading("{" A "," B(8, 16) "}  ", -1, 16), "accepted", "a correct file is accepted");
	is_str(reading("{" A "," B(8, 16) "}", -1, 13), "has 129 bytes, its header says 132: truncated",
	       "a truncated file is refused");
	is_str(reading("{" A "}", -1, 9), "has 71 bytes, its header says 70", "bytes after the end are refused");
	is_str(reading("{" A "," B(4, 12) "}", -1, 12), "tensor b: overlaps: begins at 4, a ends at 8",
	       "overlapping tensors are refused");
	is_str(reading("{" A "," B(12, 20) "}", -1, 20), "tensor b: a gap before it: begins at 12, a ends at 8",
	       "a gap between tensors is refused");
	is_str(reading("{" A "," B(8, 17) "}", -1, 17),
	       "tensor b: data_offsets give 9 bytes, but its shape as F32 gives 8",
	       "offsets that contradict the shape are refused");
	is_str(reading("{" A "," B(8, -4) "}", -1, 8), "tensor b: data_offsets are 8 and -4",
	       "an end before the beginning is refused");
	is_str(reading("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", -1, 8),
	       "tensor a: dim 0 is not a size", "a negative size is refused");
	is_str(reading("{\"a\":{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]}}", -1, 8),
	       "tensor a: dim 0 is not a size", "a size that is not an integer is refused");
	is_str(reading("{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", -1, 8),
	       "tensor a: its entry needs dtype, shape and two data_offsets", "a shape that is not a list is refused");
	is_str(reading("{" B(-8, 0) "}", -1, 8), "tensor b: data_offsets are -8 and 0",
	       "offsets before the data are refused");
	is_str(reading("{" B(9, 17) "," A "}", -1, 8), "tensor b: a gap before it: begins at 9, a ends at 8",
	       "a gap is found in any order of the header");
	is_str(reading("{\"a\":{},\"b\":{}}", -1, 8), "tensor a: its entry needs dtype, shape and two data_offsets",
	       "the first of two wrong tensors is named");
	is_str(reading("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_"
		       "offsets\":[0,0]}}",
		       -1, 0),
	       "tensor a: its shape is more than 2^63 bytes as F32", "a size that overflows is refused");
	is_str(reading("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", -1, 8),
	       "tensor a: its entry needs dtype, shape and two data_offsets", "an entry without offsets is refused");
	ok(strstr(reading("{\"a\":", -1, 8), "its header is not a JSON object: "), "half a header is refused");
	is_str(reading("[1]", -1, 8), "its header is not a JSON object: a list at byte 0",
	       "a header that is a list is refused");
	is_str(reading("{" A "}", 1000, 8),
	       "has 70 bytes, its header alone says 1000: truncated, or not a safetensors file",
	       "a header longer than the file is refused");
	ok(strstr(reading("{}", (int64_t)1 << 62, 0), "its header alone says 4611686018427387904: "),
	   "an absurd header length is refused");
	is_str(reading("{" NOBODYS "," B(3, 11) "}", -1, 11), "accepted",
	       "a tensor of an unknown type may be in the file");
	if (truncate(at("bad"), 5))
		note("not truncated");
	ok(hd_tensorfile_read(at("bad"), &r, &err) == HD_EIO &&
		   strstr(err.text, "/bad: has 5 bytes, a safetensors file at least 8"),
	   "%s", err.text);
	err.code = 0;
	ok(hd_tensorfile_read(at("absent"), &r, &err) == HD_EIO &&
		   strstr(err.text, "/absent: cannot be opened: No such file"),
	   "%s", err.text);
}

/* A child whose files are limited to 4000 bytes behaves as on a full disk. */
static void test_no_room(void)
{
	struct hd_tensorfile *f = hd_tensorfile_plan();
	struct hd_err err = { .code = 0 };
	const struct rlimit limit = { 4000, 4000 };
	float x[1000] = { 0 };
	int status = 1;

	hd_tensorfile_add(f, "x", HD_DTYPE_F32, 1, (int64_t[]){ 1000 });
	ok(!hd_tensorfile_create(f, at("full"), &err), "the file's room is reserved on creation");
	if (!fork()) {
		int right;

		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		hd_tensorfile_write(f, "x", HD_DTYPE_F32, x, NULL, NULL, NULL, &err);
		right = !!strstr(err.text, "/full: tensor x: wrote ") &&
			strstr(err.text, " of 4000 bytes at 72: File too large");
		err.code = 0;
		hd_tensorfile_close(f);
		f = hd_tensorfile_plan();
		hd_tensorfile_add(f, "x", HD_DTYPE_F32, 1, (int64_t[]){ 1000 });
		right &= hd_tensorfile_create(f, at("none"), &err) == HD_EIO && access(at("none"), F_OK) &&
			 strstr(err.text, "/none: no room for its 4072 bytes: File too large");
		if (!right)
			note("%s", err.text);
		fflush(stdout);
		_exit(!right);
	}
	wait(&status);
	ok(!status, "missing room is reported on creation, or on writing with both numbers");
	hd_tensorfile_close(f);
	f = hd_tensorfile_plan();
	hd_tensorfile_add(f, "y", HD_DTYPE_F32, 1, (int64_t[]){ 1000 });
	err.code = 0;
	ok(hd_tensorfile_open(f, at("full"), &err) == HD_EIO && strstr(err.text, "is not that of this rank's plan"),
	   "a file of another rank's plan is not written to");
	hd_tensorfile_close(f);
}

/* Tests against the Python library that other programs use for these files. */
static void test_python(void)
{
	struct hd_tensorfile *f = hd_tensorfile_plan();
	struct hd_err err = { .code = 0 };
	float x[12], half = 1.5f;
	double d = 0.1;

	if (system("python3 -c 'import safetensors.numpy' 2>/dev/null")) {
		skip("no python3 with safetensors");
		return;
	}
	for (int i = 0; i < 12; i++)
		x[i] = (float)i;
	hd_tensorfile_add(f, "h", HD_DTYPE_BF16, 0, NULL);
	hd_tensorfile_add(f, "x\n\"y", HD_DTYPE_F32, 2, (int64_t[]){ 4, 3 });
	hd_tensorfile_add(f, "d", HD_DTYPE_F64, 0, NULL);
	hd_tensorfile_add(f, "none", HD_DTYPE_I64, 2, (int64_t[]){ 0, 3 });
	hd_tensorfile_meta(f, "format", "pt");
	hd_tensorfile_create(f, at("p.safetensors"), &err);
	hd_tensorfile_write(f, "x\n\"y", HD_DTYPE_F32, x, NULL, NULL, (int64_t[]){ 1, 4 }, &err);
	hd_tensorfile_write(f, "h", HD_DTYPE_F32, &half, NULL, NULL, NULL, &err);
	ok(!hd_tensorfile_write(f, "d", HD_DTYPE_F64, &d, NULL, NULL, NULL, &err), "a file is written for Python");
	hd_tensorfile_close(f);
	setenv("HD_FILE", at("p.safetensors"), 1);
	ok(!system("python3 -c '\n"
		   "import os, safetensors\n"
		   "with safetensors.safe_open(os.environ[\"HD_FILE\"], \"np\") as f:\n"
		   "    assert f.metadata() == {\"format\": \"pt\"}\n"
		   "    assert sorted(f.keys()) == [\"d\", \"h\", \"none\", \"x\\n\\\"y\"], "
		   "f.keys()\n"
		   "    x = f.get_tensor(\"x\\n\\\"y\")\n"
		   "    assert x.tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]], x\n"
		   "    assert f.get_tensor(\"d\") == 0.1 and f.get_tensor(\"none\").shape == (0, "
		   "3)\n"
		   "'"),
	   "Python reads the same values");
	ok(!system("python3 -c '\n"
		   "import os, numpy, safetensors.numpy\n"
		   "safetensors.numpy.save_file({\"b\": numpy.arange(3.0), \"h\": "
		   "numpy.float16([0.1, 6e-8, -65504])},"
		   " os.environ[\"HD_FILE\"])'"),
	   "Python writes a file");
	if (ok(!hd_tensorfile_read(at("p.safetensors"), &f, &err), "... which can be read")) {
		ok(!hd_tensorfile_load(f, "h", HD_DTYPE_F32, x, NULL, NULL, NULL, &err) && x[0] == 0x1.998p-4f &&
			   x[1] == 0x1p-24f && x[2] == -65504.0f,
		   "... and its fp16 values are read as fp32");
		hd_tensorfile_close(f);
	}
}

static void test_sums(void)
{
	static char bytes[4096], changed[sizeof(bytes)];
	int64_t n = sizeof(bytes), wrong = 0, missed = 0;
	hd_sum128 all;

	for (int64_t i = 0; i < n; i++)
		bytes[i] = (char)pick(0, 255);
	all = hd_bytes_sum(bytes, n, 24);
	for (int i = 0; i < 200; i++) {
		int64_t a = pick(0, n), b = pick(a, n);

		wrong += hd_bytes_sum(bytes, a, 24) + hd_bytes_sum(bytes + a, b - a, 24 + a) +
				 hd_bytes_sum(bytes + b, n - b, 24 + b) !=
			 all;
	}
	is_int(wrong, 0, "the sums of the pieces of a file add up to its sum");
	for (int bit = 0; bit < 64; bit++) {
		for (int even = 2; even <= 8; even += 2) {
			memcpy(changed, bytes, sizeof(bytes));
			for (int i = 0; i < even; i++)
				changed[pick(i * n / 64, (i + 1) * n / 64 - 1) * 8 + bit / 8] ^= (char)(1 << bit % 8);
			missed += hd_bytes_sum(changed, n, 24) == all;
		}
	}
	is_int(missed, 0, "the same bit of an even number of words changes it");
	is_int((int64_t)hd_bytes_sum_1("checkpoint of 0.1", 17, 3), -5278740450187788208ll,
	       "the sum of earlier checkpoints is as it was");
}

int main(void)
{
	if (!mkdtemp(tmp))
		skip_all("no temporary directory");
	test_slices();
	test_writers();
	test_types();
	test_bad_files();
	test_no_room();
	test_sums();
	test_python();
	ok(!hd_dir_remove(tmp, &(struct hd_err){ .code = 0 }), "the temporary files are removed");
	return done();
}
