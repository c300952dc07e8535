/* SPDX-License-Identifier: Apache-2.0
 * Tensors of each type of element, in memory in rows, transposed, apart and in part: what is written is what is read.  And files
 * whose headers do not cover their data.  If one type were copied in another width, weights would be those of their neighbours.
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

/* Element (r, c) is this; small enough for all types. */
static double value(int64_t r, int64_t c)
{
	return (double)((r * 7 + c * 3) % 251);
}

/* Written from memory of these strides and one type, read into memory of others. */
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
	if (!ok(rc >= 0 && !wrong, "%#x of %#x as %#x, strides %d %d, read at %d with %d %d", stored, from, to,
		(int)stride[0], (int)stride[1], (int)off, (int)back[0], (int)back[1]))
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

/* -- what is refused ------------------------------------------------------------------------------------------------------------- */
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
	     "a file that is not open");
	said(hd_tensorfile_write(f, "nothing", HD_DTYPE_I32, x, NULL, NULL, NULL, &err),
	     "(not open): has no tensor nothing", "a tensor of none");
	is_int(hd_tensorfile_create(f, "t.safetensors", &err), 0, "a file");
	said(hd_tensorfile_write(f, "nothing", HD_DTYPE_I32, x, NULL, NULL, NULL, &err),
	     "t.safetensors: has no tensor nothing", "a tensor that it has not");
	said(hd_tensorfile_write(f, "t", HD_DTYPE_F32, x, NULL, NULL, NULL, &err),
	     "stored as I32, cannot be given as F32", "another type is written");
	said(hd_tensorfile_write(f, "t", HD_DTYPE_I32, x, (const int64_t[]){ 0, 2 }, (const int64_t[]){ 2, 2 }, NULL,
				 &err),
	     "tensor t: dim 1: 2 elements from 2 on, it has 3", "more than there is");
	said(hd_tensorfile_open(other, "t.safetensors", &err), "this rank's plan", "a file of another rank's plan");
	is_int(hd_tensorfile_read("t.safetensors", &r, &err), 0, "it is read");
	said(hd_tensorfile_load(r, "d", HD_DTYPE_F32, x, NULL, NULL, NULL, &err),
	     "stored as F64, cannot be read as F32", "as another type");
	hd_tensorfile_close(f);
	hd_tensorfile_close(other);
	hd_tensorfile_close(r);
}

/* A header, and so many bytes of data. */
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
	       "in another order than the data");
	is_int(read_header("{" T("w", "F32", "1", 0, 4) "," T("e", "F32", "0", 0, 0) "}", 4), 0,
	       "one of nothing where another begins");
	is_int(read_header("{" T("e", "F32", "0", 4, 4) "," T("w", "F32", "1", 0, 4) "}", 4), 0, "or ends");
	said(read_header("{" T("w", "F32", "1", 4, 8) "}", 8), "a gap before it: begins at 4, the header ends at 0",
	     "the first does not begin at once");
	said(read_header("{" T("w", "F32", "2", 0, 8) "," T("v", "F32", "1", 4, 8) "}", 8), "v: overlaps",
	     "two overlap");
	said(read_header("{" T("w", "F8_E4M3", "1", 0, 1) "}", 1), "stored as a dtype that only other programs use",
	     "a type of other programs");
	said(read_header("{" T("w", "F32", "1,1,1,1,1,1,1,1,1", 0, 4) "}", 4), "9 dims, but at most 8 are possible",
	     "more dims than there are");
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
