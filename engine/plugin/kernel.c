/* SPDX-License-Identifier: Apache-2.0
 * Presents a plugin's kernel as one of the engine's: gives it its operands as public views and its memory, and checks
 * its status.
 */
#include <config.h>
#include "engine/plugin/kernel.h"
#include "engine/plugin/turn.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loaded {                        /* one launch */
	struct hd_kernel_prepare args; /* must be first: alloc and fail get its address */
	const struct hd_kernel_ops *ops;
	const char *section;
	struct kernel_memory *memory;
	struct hd_kernel_bytes bytes;
	int holds;          /* whether it holds the shared scratch memory */
	struct hd_err *err; /* set only during prepare */
	int failed;         /* the first value other than HD_OK that run returned */
};

static void *alloc(struct hd_kernel_prepare *a, size_t bytes)
{
	struct loaded *l = (struct loaded *)(void *)a;
	void *p = hd_kernel_memory_keep(&l->memory, bytes);

	l->bytes.kept += p ? (int64_t)bytes : 0;
	return p;
}

static int fail(struct hd_kernel_prepare *a, int32_t code, const char *fmt, ...)
{
	struct loaded *l = (struct loaded *)(void *)a;
	char text[600];
	va_list v;

	va_start(v, fmt);
	vsnprintf(text, sizeof(text), fmt, v);
	va_end(v);
	if (code >= 0)
		code = HD_EINVAL;
	if (l->err && !l->err->code)
		hd_err_set(l->err, code, "kernel %s of [%s]: %s", l->ops->name, l->section, text);
	return code;
}

static void release_state(struct loaded *l)
{
	hd_turn_kernel(l->section, l->ops->name);
	l->ops->release(l->args.state);
	hd_turn_kernel(NULL, NULL);
}

static void release(void *state)
{
	struct loaded *l = state;

	if (HD_HAS(l->ops, release) && l->ops->release && l->args.state)
		release_state(l);
	hd_kernel_memory_free(l->memory);
	if (l->holds)
		hd_kernel_scratch_leave();
	free((void *)l->args.ins);
	free(l);
}

/* Builds ins and outs: one array of pointers and then the operands, in one allocation. */
static void set_operands(struct hd_kernel_prepare *a, const struct hd_kernel_desc *d)
{
	uint32_t n = d->nin + d->nout;
	const struct hd_operand **list = hd_alloc((n + 1) * (sizeof(*list) + sizeof(struct hd_operand)));
	struct hd_operand *o = (struct hd_operand *)(void *)(list + n + 1);

	for (uint32_t i = 0; i < n; i++) {
		const struct hd_view *v = i < d->nin ? &d->in[i] : &d->out[i - d->nin];

		o[i] = (struct hd_operand){ sizeof(*o), v->dims, v->n, v->off, v->ndim, v->dtype };
		list[i] = &o[i];
	}
	a->ins = list;
	a->outs = list + d->nin;
	a->nin = d->nin;
	a->nout = d->nout;
}

static int ask_scratch(struct loaded *l, struct hd_strategy *self)
{
	const struct hd_kernel_ops *ops = l->ops;

	if (HD_HAS(ops, scratch) && ops->scratch)
		l->bytes.scratch = ops->scratch(self, &l->args);
	if (!l->err->code && l->bytes.scratch < 0)
		fail(&l->args, HD_EBUG, "scratch returned %lld bytes", (long long)l->bytes.scratch);
	return l->err->code;
}

/* Calls the slots scratch and prepare for the launch p. */
static int load(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o, const struct hd_kernel_desc *d,
		struct hd_prep *p, struct hd_err *err)
{
	struct loaded *l = hd_alloc(sizeof(*l));
	int rc;

	l->args = (struct hd_kernel_prepare){ .size = sizeof(l->args),
					      .attr = d->attr,
					      .threads = o->threads > 0 ? o->threads : 1,
					      .alloc = alloc,
					      .fail = fail };
	set_operands(&l->args, d);
	l->ops = ops;
	l->section = o->section;
	l->err = err;
	p->state = l;
	p->release = release;
	rc = ask_scratch(l, o->self);
	if (rc >= 0)
		rc = ops->prepare(o->self, &l->args);
	l->err = NULL;
	if (err->code || rc == HD_OK)
		return err->code;
	return hd_err_set(err, rc < 0 ? rc : HD_EBUG, "kernel %s of [%s]: prepare returned %d without a message",
			  ops->name, o->section, rc);
}

int hd_plugin_kernel_prepare(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			     const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct loaded *l;

	HD_TRY(load(ops, o, d, p, err));
	l = p->state;
	l->holds = l->bytes.scratch > 0 && hd_kernel_scratch_hold(l->bytes.scratch);
	if (l->bytes.scratch > 0 && !l->holds)
		hd_err_set(err, HD_ENOMEM, "kernel %s of [%s]: no memory for scratch of %lld bytes", ops->name,
			   o->section, (long long)l->bytes.scratch);
	return err->code;
}

int hd_plugin_kernel_bytes(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			   const struct hd_kernel_desc *d, struct hd_kernel_bytes *bytes, struct hd_err *err)
{
	struct hd_prep p = { .state = NULL };
	int rc = load(ops, o, d, &p, err);

	*bytes = hd_plugin_kernel_takes(&p);
	release(p.state);
	return rc;
}

struct hd_kernel_bytes hd_plugin_kernel_takes(const struct hd_prep *p)
{
	return ((const struct loaded *)p->state)->bytes;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	struct loaded *l = p->state;
	const struct hd_step step = { .size = sizeof(step),
				      .seed = r->seed,
				      .step = r->step,
				      .lr = r->lr,
				      .loss_scale = r->loss_scale,
				      .train = r->train };
	struct hd_kernel_run a = { .size = sizeof(a),
				   .state = l->args.state,
				   .ins = in,
				   .outs = out,
				   .stream = r->queue,
				   .step = r->step_constants ? r->step_constants : &step,
				   .sample0 = r->sample0,
				   .threads = l->args.threads,
				   .scratch = l->holds ? hd_kernel_scratch_at(l->bytes.scratch) : NULL };

	if (l->failed)
		return;
	hd_turn_kernel(l->section, l->ops->name);
	l->failed = l->ops->run(&a);
	hd_turn_kernel(NULL, NULL);
}

int hd_plugin_kernel_failed(const struct hd_prep *p, struct hd_err *err)
{
	const struct loaded *l = p->state;

	return l->failed ? hd_err_set(err, HD_EIO, "kernel %s of [%s] failed with code %d", l->ops->name, l->section,
				      l->failed)
			 : HD_OK;
}

int hd_plugin_kernel_overrun(const struct hd_prep *p)
{
	return hd_kernel_memory_overrun(((const struct loaded *)p->state)->memory);
}

const struct hd_kernel hd_plugin_kernel = { .name = "a plugin's", .run = run };
