/* SPDX-License-Identifier: Apache-2.0
 * Tensors of each element type, in memory as rows, transposed, strided or in part, are read as they were written.
 * Headers that do not cover their data are refused.  If one type were copied in another's width, weights would be those
 * of their neighbours.
 */
#include <config.h>
#include "engine/base/half.h"
#include "engine/device/call.h"
#include "engine/tensorfile/tensorfile.h"
#include "t/lib/tap.h"
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 130, COLS = 70, ROOM = 4 * ROWS * COLS };

static char tmp[] = "/tmp/heddle-t1032.XXXXXX";
static struct hd_err err;

static double get(const void *at, int64_t i, uint32_t dtype)
{
	switch (dtype) {
	case HD_DTYPE_U8: return ((const uint8_t *)at)[i];
	case HD_DTYPE_BF16: return hd_of_bf16(((const uint16_t *)at)[i]);
	case HD_DTYPE_F16: return hd_of_f16(((const uint16_t *)at)[i]);
	case HD_DTYPE_F32: return ((const float *)at)[i];
	case HD_DTYPE_I32: return ((const int32_t *)at)[i];
	default: return ((const double *)at)[i];
	}
}

static void put(void *at, int64_t i, uint32_t dtype, double x)
{
	switch (dtype) {
	case HD_DTYPE_U8: ((uint8_t *)at)[i] = (uint8_t)x; break;
	case HD_DTYPE_BF16: ((uint16_t *)at)[i] = hd_bf16_of((float)x); break;
	case HD_DTYPE_F16: ((uint16_t *)at)[i] = hd_f16_of((float)x); break;
	case HD_DTYPE_F32: ((float *)at)[i] = (float)x; break;
	case HD_DTYPE_I32: ((int32_t *)at)[i] = (int32_t)x; break;
	default: ((double *)at)[i] = x;
	}
}

/* The value of element (r, c), small enough for all types. */
static double value(int64_t r, int64_t c)
{
	return (double)((r * 7 + c * 3) % 251);
}

/* Writes a tensor from memory of one type and stride, and reads it into memory of another type and stride. */
static void round_trip(uint32_t stored, uint32_t from, uint32_t to, const int64_t stride[2], const int64_t back[2],
		       int64_t off)
{
	struct hd_tensorfile *f = hd_tensorfile_plan(), *r = NULL;
	const int64_t shape[] = { ROWS, COLS }, at[] = { 0, off }, n[] = { ROWS, COLS - off };
	void *mem = hd_alloc(ROOM * 8), *read = hd_alloc(ROOM * 8);
	int64_t wrong = 0;
	int rc;

	for (int64_t i = 0; i < ROWS; i++)
		for (int64_t k = 0; k < COLS; k++)
			put(mem, i * stride[0] + k * stride[1], from, value(i, k));
	hd_tensorfile_add(f, "t", stored, 2, shape);
	rc = hd_tensorfile_create(f, "t.safetensors", &err);
	rc = rc < 0 ? rc : hd_tensorfile_write(f, "t", from, mem, NULL, NULL, stride, &err);
	rc = rc < 0 ? rc : hd_tensorfile_read("t.safetensors", &r, &err);
	rc = rc < 0 ? rc : hd_tensorfile_load(r, "t", to, read, at, n, back, &err);
	for (int64_t i = 0; rc >= 0 && i < ROWS; i++)
		for (int64_t k = off; k < COLS; k++)
			wrong += get(read, i * back[0] + (k - off) * back[1], to) != value(i, k);
	if (!ok(rc >= 0 && !wrong,
		"%#x written from %#x is read as %#x: strides %d %d, read from %d on with strides %d %d", stored, from,
		to, (int)stride[0], (int)stride[1], (int)off, (int)back[0], (int)back[1]))
		note("%s; %lld wrong", err.text, (long long)wrong);
	hd_tensorfile_close(f);
	hd_tensorfile_close(r);
	free(mem), free(read);
}

static void types(void)
{
	static const int64_t strides[][2] = { { COLS, 1 }, { 1, ROWS }, { 2 * COLS, 2 }, { COLS + 3, 1 } };
	static const uint32_t kinds[][3] = {
		{ HD_DTYPE_U8, HD_DTYPE_U8, HD_DTYPE_U8 },     { HD_DTYPE_BF16, HD_DTYPE_BF16, HD_DTYPE_BF16 },
		{ HD_DTYPE_F32, HD_DTYPE_F32, HD_DTYPE_F32 },  { HD_DTYPE_F64, HD_DTYPE_F64, HD_DTYPE_F64 },
		{ HD_DTYPE_BF16, HD_DTYPE_F32, HD_DTYPE_F32 }, { HD_DTYPE_F16, HD_DTYPE_F16, HD_DTYPE_F32 }
	};

	for (size_t k = 0; k < HD_LEN(kinds); k++)
		for (size_t i = 0; i < HD_LEN(strides); i++)
			for (int off = 0; off < 2; off++)
				round_trip(kinds[k][0], kinds[k][1], kinds[k][2], strides[i],
					   strides[(i + 1 + k) % HD_LEN(strides)], 5 * off);
}

/* -- refusals ------------------------------------------------------------------------------------------------------ */
static void said(int rc, const char *want, const char *what)
{
	if (!ok(rc < 0 && strstr(err.text, want), "%s", what))
		note("said: %s", err.text);
	memset(&err, 0, sizeof(err));
}

static void refused(void)
{
	static const int64_t shape[] = { 2, 3 };
	struct hd_tensorfile *f = hd_tensorfile_plan(), *other = hd_tensorfile_plan(), *r = NULL;
	float x[6] = { 0 };

	hd_tensorfile_add(f, "t", HD_DTYPE_I32, 2, shape);
	hd_tensorfile_add(f, "d", HD_DTYPE_F64, 2, shape);
	hd_tensorfile_add(other, "t", HD_DTYPE_I32, 2, shape);
	said(hd_tensorfile_write(f, "t", HD_DTYPE_I32, x, NULL, NULL, NULL, &err), "tensor t: its file is not open",
	     "writing to a file that is not open is refused");
	said(hd_tensorfile_write(f, "nothing", HD_DTYPE_I32, x, NULL, NULL, NULL, &err),
	     "(not open): has no tensor nothing", "... also if it has no such tensor");
	is_int(hd_tensorfile_create(f, "t.safetensors", &err), 0, "a file is created");
	said(hd_tensorfile_write(f, "nothing", HD_DTYPE_I32, x, NULL, NULL, NULL, &err),
	     "t.safetensors: has no tensor nothing", "writing an unknown tensor is refused");
	said(hd_tensorfile_write(f, "t", HD_DTYPE_F32, x, NULL, NULL, NULL, &err),
	     "stored as I32, cannot be given as F32", "writing a different type is refused");
	said(hd_tensorfile_write(f, "t", HD_DTYPE_I32, x, (const int64_t[]){ 0, 2 }, (const int64_t[]){ 2, 2 }, NULL,
				 &err),
	     "tensor t: dim 1: 2 elements from 2 on, but it has 3", "writing beyond the tensor is refused");
	said(hd_tensorfile_open(other, "t.safetensors", &err), "this rank's plan",
	     "opening a file of another rank's plan is refused");
	is_int(hd_tensorfile_read("t.safetensors", &r, &err), 0, "the file is read");
	said(hd_tensorfile_load(r, "d", HD_DTYPE_F32, x, NULL, NULL, NULL, &err),
	     "stored as F64, cannot be read as F32", "reading F64 as F32 is refused");
	hd_tensorfile_close(f);
	hd_tensorfile_close(other);
	hd_tensorfile_close(r);
}

/* Writes a file of this header and this many bytes of data, and reads tensor w from it. */
static int read_header(const char *header, size_t bytes)
{
	struct hd_tensorfile *f = NULL;
	uint64_t n = strlen(header);
	FILE *out = fopen("h.safetensors", "w");
	char zero[64] = { 0 };
	float x[4];
	int rc;

	fwrite(&n, 8, 1, out);
	fwrite(header, 1, n, out);
	fwrite(zero, 1, bytes, out);
	fclose(out);
	rc = hd_tensorfile_read("h.safetensors", &f, &err);
	if (rc >= 0)
		rc = hd_tensorfile_load(f, "w", HD_DTYPE_F32, x, NULL, NULL, NULL, &err);
	hd_tensorfile_close(f);
	return rc;
}

#define T(name, type, shape, from, to) \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

static void headers(void)
{
	is_int(read_header("{" T("z", "F32", "1", 4, 8) "," T("w", "F32", "1", 0, 4) "}", 8), 0,
	       "a header in a different order than the data is accepted");
	is_int(read_header("{" T("w", "F32", "1", 0, 4) "," T("e", "F32", "0", 0, 0) "}", 4), 0,
	       "an empty tensor at the beginning of another is accepted");
	is_int(read_header("{" T("e", "F32", "0", 4, 4) "," T("w", "F32", "1", 0, 4) "}", 4), 0, "... or at its end");
	said(read_header("{" T("w", "F32", "1", 4, 8) "}", 8), "a gap before it: begins at 4, the header ends at 0",
	     "a gap before the first tensor is refused");
	said(read_header("{" T("w", "F32", "2", 0, 8) "," T("v", "F32", "1", 4, 8) "}", 8), "v: overlaps",
	     "overlapping tensors are refused");
	said(read_header("{" T("w", "F8_E4M3", "1", 0, 1) "}", 1), "stored as a dtype that only other programs use",
	     "a type that only other programs use cannot be read");
	said(read_header("{" T("w", "F32", "1,1,1,1,1,1,1,1,1", 0, 4) "}", 4), "9 dims, but at most 8 are possible",
	     "more than 8 dims are refused");
}

int main(void)
{
	if (!mkdtemp(tmp) || chdir(tmp))
		skip_all("no temporary directory");
	types();
	refused();
	headers();
	unlink("t.safetensors");
	unlink("h.safetensors");
	if (!chdir("/"))
		rmdir(tmp);
	return done();
}
