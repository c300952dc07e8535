/* SPDX-License-Identifier: Apache-2.0
 * Tensors of more than 2^31 elements and 2^32 bytes: kernels that move rows find them at both ends, and slices of a
 * file of such a tensor lie where they must.  Memory and files are sparse: only touched pages exist.  If an index were
 * an int, the last rows of a large vocabulary would be read from the wrong place.
 */
#include <config.h>
#include "engine/base/half.h"
#include "engine/device/device.h"
#include "engine/tensorfile/tensorfile.h"
#include "t/lib/tap.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROWS 70001
#define COLS 40009
#define ALL ((int64_t)ROWS * COLS) /* 2.8e9 */
#define FEW 5

extern const struct hd_kernel hd_cpu_copy, hd_cpu_embedding, hd_cpu_embedding_dw, hd_cpu_select, hd_cpu_sumsq;

static struct hd_dim rows = { .name = "vocab", .n = ROWS }, cols = { .name = "embed", .n = COLS },
		     few = { .name = "batch", .n = FEW };
static struct hd_run step = { .step = 1, .train = 1 };

static void *sparse(int64_t bytes)
{
	void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static struct hd_view view(uint32_t dtype, const struct hd_dim *a, const struct hd_dim *b)
{
	struct hd_view v = { .dtype = dtype, .ndim = a ? b ? 2 : 1 : 0, .dims = { a, b } };

	v.n[0] = a ? a->n : 0;
	v.n[1] = b ? b->n : 0;
	return v;
}

static int go(const struct hd_kernel *k, const char *attr, int nin, const struct hd_view *in, const struct hd_view *out,
	      void *const *from, void *const *to)
{
	struct hd_kernel_desc d = { .attr = attr, .nin = (uint32_t)nin, .nout = 1, .in = in, .out = out };
	struct hd_prep p = { 0 };
	struct hd_err err = { 0 };

	if (k->prepare(&d, &p, &err) < 0)
		return ok(0, "%s %s: %s", k->name, attr, err.text);
	k->run(&p, to, from, &step);
	if (p.release)
		p.release(p.state);
	return 1;
}

static float value_at(int64_t i)
{
	return (float)(i % 8191) + 0.5f;
}

/* Rows below and above each power of two. */
static const int32_t some[FEW] = { 0, (int32_t)((1ll << 31) / COLS), (int32_t)((1ll << 31) / COLS + 1),
				   (int32_t)((1ll << 30) / COLS + 1), ROWS - 1 };

static void set_rows(float *x)
{
	for (int k = 0; k < FEW; k++)
		for (int64_t j = 0; j < COLS; j++)
			x[some[k] * (int64_t)COLS + j] = value_at(some[k] * (int64_t)COLS + j);
}

static void embedding(float *table)
{
	struct hd_view in[2] = { view(HD_DTYPE_I32, &few, NULL), view(HD_DTYPE_F32, &rows, &cols) };
	struct hd_view out = view(HD_DTYPE_F32, &few, &cols), back[2] = { in[0], out };
	float *y = calloc(FEW * COLS, sizeof(*y)), *dw = sparse(ALL * 4);
	int same = 1;

	set_rows(table);
	go(&hd_cpu_embedding, "", 2, in, &out, (void *[]){ (void *)(uintptr_t)some, table }, (void *[]){ y });
	for (int64_t i = 0; i < FEW * COLS; i++)
		same &= y[i] == value_at(some[i / COLS] * (int64_t)COLS + i % COLS);
	ok(same, "rows of a table of %lld elements are read", (long long)ALL);
	same = 1;
	step.acc = 1; /* the rest stays untouched */
	go(&hd_cpu_embedding_dw, "", 2, back, &in[1], (void *[]){ (void *)(uintptr_t)some, y }, (void *[]){ dw });
	step.acc = 0;
	for (int64_t i = 0; i < FEW * COLS; i++)
		same &= dw[some[i / COLS] * (int64_t)COLS + i % COLS] == y[i];
	ok(same, "... and their gradients are written");
	munmap(dw, ALL * 4);
	free(y);
}

/* Copies pieces out of the tensor and back, with numbers as the engine gives a copy: 2^31 - 7 elements apart. */
static void copy(float *x)
{
	struct hd_dim all = { .name = "a", .n = ALL }, part = { .name = "b", .n = 8 };
	struct hd_view whole = view(HD_DTYPE_F32, &all, NULL), piece = view(HD_DTYPE_F32, &part, NULL);
	int64_t from = 17, by = (1ll << 31) - 7;
	float y[8], *z = sparse(ALL * 4);
	char attr[200];
	int same = 1;

	for (int64_t i = 0; i < 8; i++)
		x[from + i / 4 * by + i % 4] = (float)(i + 1);
	snprintf(attr, sizeof(attr), "runs=2 run=4 src=%lld src_step=%lld", (long long)from, (long long)by);
	go(&hd_cpu_copy, attr, 1, &whole, &piece, (void *[]){ x }, (void *[]){ y });
	for (int i = 0; i < 8; i++)
		same &= y[i] == (float)(i + 1);
	ok(same, "pieces are copied out of it, %s", attr);
	same = 1;
	snprintf(attr, sizeof(attr), "runs=2 run=4 dst=%lld dst_step=%lld", (long long)(from + by), (long long)-by);
	go(&hd_cpu_copy, attr, 1, &piece, &whole, (void *[]){ y }, (void *[]){ z });
	for (int64_t i = 0; i < 8; i++)
		same &= z[from + (1 - i / 4) * by + i % 4] == (float)(i + 1);
	ok(same, "... and into it, %s", attr);
	snprintf(attr, sizeof(attr), "runs=2 run=4 src=%lld src_step=%lld", (long long)(ALL - by - 3), (long long)by);
	{
		struct hd_kernel_desc d = { .attr = attr, .nin = 1, .nout = 1, .in = &whole, .out = &piece };
		struct hd_prep p = { 0 };
		struct hd_err err = { 0 };

		ok(hd_cpu_copy.prepare(&d, &p, &err) < 0, "a copy one element beyond its end is refused: %s", err.text);
	}
	munmap(z, ALL * 4);
}

static void select_row(float *x)
{
	struct hd_dim seq = { .name = "seq", .n = ROWS / FEW };
	struct hd_view in = view(HD_DTYPE_F32, &few, &seq), out = view(HD_DTYPE_F32, &few, &cols);
	float *y = calloc(FEW * COLS, sizeof(*y));
	int same = 1;

	in.ndim = 3;
	in.dims[2] = &cols;
	in.n[2] = COLS;
	step.position = seq.n - 1;
	for (int64_t b = 0; b < FEW; b++)
		for (int64_t j = 0; j < COLS; j++)
			x[(b * seq.n + step.position) * COLS + j] = value_at(b * COLS + j);
	go(&hd_cpu_select, "", 1, &in, &out, (void *[]){ x }, (void *[]){ y });
	for (int64_t i = 0; i < FEW * COLS; i++)
		same &= y[i] == value_at(i);
	ok(same, "the last row of each sequence of such a tensor is selected");
	free(y);
}

/* Replaces libc's function so that no disk space is allocated: the file is sparse too. */
int fallocate(int fd, int mode, off_t from, off_t bytes)
{
	(void)fd, (void)mode, (void)from, (void)bytes;
	errno = EOPNOTSUPP;
	return -1;
}

/* Writes and reads a slice in the last row of a sparse file, through memory with a different order of dims. */
static void file(void)
{
	static const int64_t shape[] = { ROWS, COLS }, off[] = { ROWS - 1, COLS - 3 }, n[] = { 1, 3 }, by[] = { 1, 2 };
	char path[] = "/tmp/heddle-t2021.XXXXXX";
	struct hd_tensorfile *f = hd_tensorfile_plan(), *r = NULL;
	struct hd_err err = { 0 };
	float in[] = { 1, 0, 2, 0, 3, 0 }, out[6] = { 0 };
	uint16_t last[3];
	int64_t bytes;
	int fd = mkstemp(path);

	hd_tensorfile_add(f, "w", HD_DTYPE_BF16, 2, shape);
	bytes = hd_tensorfile_bytes(f);
	ok(bytes > 2 * ALL && bytes < 2 * ALL + 4096, "the file has %lld bytes", (long long)bytes);
	ok(!hd_tensorfile_create(f, path, &err) && !hd_tensorfile_write(f, "w", HD_DTYPE_F32, in, off, n, by, &err),
	   "its last elements are written %s", err.text);
	ok(pread(fd, last, 6, bytes - 6) == 6 && last[0] == hd_bf16_of(1) && last[1] == hd_bf16_of(2) &&
		   last[2] == hd_bf16_of(3),
	   "... at its end");
	ok(!hd_tensorfile_read(path, &r, &err) && !hd_tensorfile_load(r, "w", HD_DTYPE_F32, out, off, n, by, &err),
	   "... and are read again %s", err.text);
	ok(!memcmp(in, out, sizeof(in)), "... unchanged");
	hd_tensorfile_close(r);
	hd_tensorfile_close(f);
	close(fd);
	unlink(path);
}

/* Reads the complete tensor, which takes seconds. */
static void norm(float *x)
{
	struct hd_dim all = { .name = "a", .n = ALL };
	struct hd_view in = view(HD_DTYPE_F32, &all, NULL), out = view(HD_DTYPE_F64, NULL, NULL);
	double sum = -1;

	x[0] = 3;
	x[ALL - 1] = 4;
	go(&hd_cpu_sumsq, "", 1, &in, &out, (void *[]){ x }, (void *[]){ &sum });
	near(sum, 25, 0, "the sum of squares reaches the last element");
}

int main(void)
{
	float *x = sparse(ALL * 4);

	if (!x)
		return skip("no address space for a tensor with holes"), done();
	embedding(x);
	copy(x);
	select_row(x);
	munmap(x, ALL * 4);
	file();
	x = whole_sweep() ? sparse(ALL * 4) : NULL;
	if (x)
		norm(x);
	return done();
}
