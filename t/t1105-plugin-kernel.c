/* SPDX-License-Identifier: Apache-2.0
 * Kernels of plugins: examples/squared-relu replaces every GELU.  If this broke, a new kernel would need a fork of the
 * engine.  Or worse, a plugin's kernel would run on wrong sizes, or its gradient belong to another function.
 *
 *   - each kernel is compared with its definition, element by element, f32 exactly and bf16 up to rounding;
 *   - the gradient of a complete model with it, by central differences in double (the kernels of `ref`), also sharded
 * over tp;
 *   - refusals of prepare, in one line.
 */
#include <config.h>
#include "t/lib/one_rank.h"
#include "engine/plugin/kernel.h"

static char so[] = "/tmp/heddle-t1105.XXXXXX/squared_relu.so";

static int build(void)
{
	char *dir = hd_strdup(so), command[2000];
	int rc;

	*strrchr(dir, '/') = 0;
	if (!mkdtemp(dir))
		return -1;
	memcpy(so, dir, strlen(dir));
	snprintf(command, sizeof(command),
		 "${CC:-cc} -std=gnu11 -O1 -fopenmp -fPIC -shared -fvisibility=hidden -I '%s/include' -o '%s' "
		 "'%s/examples/squared-relu/squared_relu.c'",
		 HD_TEST_SRC, so, HD_TEST_SRC);
	rc = system(command);
	free(dir);
	return rc;
}

static struct hd_plan *plan(int ranks, const char *sections)
{
	char ini[2000];

	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 4\nmicro_batch = 2\nsteps = 1\noptimizer = sgd\nclip = 0\n"
		"[plugin relu2]\nfile = %s\n%s",
		so, sections);
	return gt_plan_of(ini, ranks, HD_DTYPE_F64);
}

/* -- the kernels of the cpu ------------------------------------------------------------------------------------------------ */
static float bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

#define N 70000 /* several threads are used from 65536 on */

static void kernel(const struct inst *in, uint32_t dtype, int backward)
{
	static const struct hd_dim dims[2] = { { sizeof(dims[0]), "batch", 7 }, { sizeof(dims[0]), "mlp", N / 7 } };
	struct hd_view v = { .dtype = dtype, .ndim = 2, .dims = { &dims[0], &dims[1] }, .n = { 7, N / 7 } }, views[3];
	struct hd_kernel_desc d = { "", backward ? 2 : 1, 1, views, views + 2 };
	const struct hd_kernel_ops *k = hd_registry_kernel(in->plugin, "cpu", "squared_relu");
	const struct hd_kernel_owner owner = { in->self, in->name, 2 };
	size_t each = HD_BITS(dtype) / 8;
	char *x = hd_alloc(3 * N * each), *dy = x + N * each, *y = dy + N * each;
	struct hd_prep prep = { .state = NULL };
	struct hd_err err = { 0 };
	int wrong = 0;

	views[0] = views[1] = views[2] = v;
	for (int i = 0; i < 2 * N; i++) { /* steps of 1/16: exact in both dtypes */
		float f = (float)((i * 7919) % 61 - 30) / 16;
		uint32_t bits;

		memcpy(&bits, &f, sizeof(bits));
		if (each == 4)
			((float *)(void *)x)[i] = f;
		else
			((uint16_t *)(void *)x)[i] = (uint16_t)(bits >> 16);
	}
	if (!ok(k && !hd_plugin_kernel_prepare(k, &owner, &d, &prep, &err), "the kernel is prepared")) {
		note("%s", err.text);
		return;
	}
	hd_plugin_kernel.run(&prep, (void *[]){ y }, (void *[]){ x, dy }, &(struct hd_run){ .step = 1 });
	for (int i = 0; i < N; i++) {
		double a = each == 4 ? ((float *)(void *)x)[i] : bf16(((uint16_t *)(void *)x)[i]);
		double b = each == 4 ? ((float *)(void *)dy)[i] : bf16(((uint16_t *)(void *)dy)[i]);
		double c = each == 4 ? ((float *)(void *)y)[i] : bf16(((uint16_t *)(void *)y)[i]);
		double want = a > 0 ? (backward ? 2 * a * b : a * a) : 0;

		wrong += !(fabs(c - want) <= (each == 4 ? 0 : 0x1p-8 * fabs(want)));
	}
	ok(!wrong, "squared_relu%s of %s equals its definition (%d of %d elements are off)", backward ? "_d" : "",
	   hd_dtype_name(dtype), wrong, N);
	ok(hd_plugin_kernel_failed(&prep, &err) == HD_OK, "... and reports no failure");
	prep.release(prep.state);
	free(x);
}

static void refused(const struct inst *in)
{
	static const struct hd_dim dim = { sizeof(dim), "mlp", 8 };
	struct hd_view v[2] = { { .dtype = HD_DTYPE_F16, .ndim = 1, .dims = { &dim }, .n = { 8 } },
				{ .dtype = HD_DTYPE_F32, .ndim = 1, .dims = { &dim }, .n = { 7 } } };
	const struct hd_kernel_ops *k = hd_registry_kernel(in->plugin, "cpu", "squared_relu");
	const struct hd_kernel_owner owner = { in->self, in->name, 2 };
	struct hd_kernel_desc d = { "", 1, 1, v, v + 1 };
	struct hd_prep prep = { .state = NULL };
	struct hd_err err = { 0 };

	hd_plugin_kernel_prepare(k, &owner, &d, &prep, &err);
	is_str(err.text,
	       "kernel squared_relu of [relu2]: x has dtype 0x31000, f32 (0x32000) or bf16 (0x31001) are possible",
	       "a dtype that the kernel does not accept is refused");
	prep.release(prep.state);
	memset(&err, 0, sizeof(err));
	v[0].dtype = HD_DTYPE_F32;
	hd_plugin_kernel_prepare(k, &owner, &d, &prep, &err);
	is_str(err.text, "kernel squared_relu of [relu2]: the result has 7 of mlp, x has 8",
	       "a result of a different size is refused");
	prep.release(prep.state);
}

static void kernels(void)
{
	struct hd_plan *p = plan(1, "");

	if (!ok(p && p->ninst == 1, "a plugin without an axis is planned")) {
		note("%s", gt_why());
		return;
	}
	for (int backward = 0; backward < 2; backward++) {
		kernel(&p->inst[0], HD_DTYPE_F32, backward);
		kernel(&p->inst[0], HD_DTYPE_BF16, backward);
	}
	refused(&p->inst[0]);
	hd_plan_destroy(p);
}

/* -- whole models ---------------------------------------------------------------------------------------------------------- */
static int count(const struct hd_plan *p, const char *op)
{
	int n = 0;

	for (const struct node *x = p->first; x; x = x->next)
		n += !strcmp(x->v.op->name, op);
	return n;
}

static void models(void)
{
	static const char *const tp = "[strategy tp]\nplugin = " HD_TEST_BUILD "/plugins/tp/.libs/tp.so\nsize = 2\n";
	struct hd_plan *p = plan(1, "");
	const char *where = "";
	double off;

	is_int(count(p, "squared_relu"), 2, "each layer has one squared_relu");
	is_int(count(p, "squared_relu_d"), 2, "... and one gradient of it");
	is_int(count(p, "gelu"), 0, "... and no gelu");
	one = gt_open(p, NULL);
	off = one ? gt_differences(one, 12, &where) : NAN;
	if (!ok(off <= 1, "the model's gradient agrees with finite differences"))
		note("off by %g times the tolerance in %s (%s)", off, where, gt_why());
	gt_compute(one);
	like_one_rank(gt_open(plan(2, tp), sim_members), "sharded over two ranks", "gpt2");
	gt_close(one);
}

int main(void)
{
	if (!ok(!build(), "the example is built with only the public headers"))
		return done();
	kernels();
	models();
	return done();
}
