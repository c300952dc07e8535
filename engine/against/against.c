/* SPDX-License-Identifier: Apache-2.0
 * check --against-one-rank: compares the layout, started by mpirun as it will run, with the same model on one rank.
 *
 * Both use SGD, without clipping and weight decay, so that a wrong scale of a gradient shows: AdamW would divide it
 * out.
 */
#include <config.h>
#include "engine/against/against.h"
#include "engine/against/compare.h"
#include "engine/base/library.h"
#include "engine/file/atomic_file.h"
#include "engine/file/file.h"
#include "engine/passes/passes.h"
#include "engine/plugin/registry.h"
#include "engine/process/launch.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 3
/* Relative change of the initial weights, so that all values computed from them are rounded differently. */
#define LAST_BITS 0x1p-22

struct against_files {
	char *dir; /* the directory of the runs; NULL: not created */
	char *one_ini, *program;
	char **exact;  /* settings that replace the layout's own: rounding on purpose is not an error */
	char *inexact; /* text that lists what they replace; NULL: nothing */
	size_t nexact, cap_exact;
};

/* Returns the sizes that the bounds depend on: the lengths of the sums that a gradient passes through, and the
 * precision. */
static struct hd_comparison lengths(const struct hd_plan *p)
{
	const struct hd_model *m = &p->model;
	struct hd_comparison c = { .steps = STEPS, .layers = m->layers, .tokens = p->config.batch.full * m->seq };

	c.bf16 = hd_precision_asked(&p->config, p->config.device == HD_DEVICE_CUDA) == HD_DTYPE_BF16;
	c.terms = m->layers * (16 * m->embed + 2 * m->mlp + 6 * m->seq + 2 * m->head_dim + 30 * 2) + 2 * m->vocab +
		  c.tokens;
	return c;
}

/* -- the two runs ------------------------------------------------------------------------------------------ */
/* Returns the text of the INI without its strategies. */
static char *without_strategies(struct hd_conf *conf)
{
	char *text = hd_conf_text(conf), *kept = hd_strdup("");
	int keep = 1;

	for (char *line = text, *next; *line; line = next) {
		size_t n = strcspn(line, "\n");

		next = line + n + (line[n] == '\n');
		if (*line == '[')
			keep = strncmp(line, "[strategy", 9) != 0;
		if (keep)
			hd_append(&kept, "%.*s\n", (int)n, line);
	}
	free(text);
	return kept;
}

static int write_one(const struct hd_against *a, struct against_files *f, struct hd_err *err)
{
	struct hd_conf *conf = NULL;
	char *text;
	int rc;

	HD_TRY(hd_conf_read(a->conf, a->sets, a->nsets, &conf, err));
	text = without_strategies(conf);
	hd_conf_destroy(conf);
	f->one_ini = hd_format("%s/one.ini", f->dir);
	rc = hd_file_write(f->one_ini, text, err);
	free(text);
	return rc;
}

static const char *const settings[] = {
	"train.optimizer=sgd",  "train.lr=0.01",        "train.schedule=constant",
	"train.warmup=0",       "train.clip=0",         "train.weight_decay=0",
	"train.eval_every=0",   "train.eval_batches=1", "train.global_batch_ramp=",
	"checkpoint.resume=no", "checkpoint.every=0",   "checkpoint.gradients=yes",
	"log.trace=",
};

/* Adds the settings that make an approximate plugin exact ("wire=fp32 ...", struct hd_plugin), if its section
 * differs. */
static void add_exact_settings(const struct inst *x, struct against_files *f)
{
	const char *at = x->plugin->approximate;
	struct hd_exact_key k;

	while (at && hd_exact_next(&at, &k)) {
		char *key = hd_format("%.*s", k.nkey, k.key), *value = hd_format("%.*s", k.nvalue, k.value);

		if (strcmp(hd_section_str(x->section, key), value) != 0) {
			f->exact = hd_grow(f->exact, f->nexact, &f->cap_exact, sizeof(*f->exact));
			f->exact[f->nexact++] = hd_format("%s.%s=%s", x->name, key, value);
			hd_append(&f->inexact, "not compared: %s.%s = %s, which rounds; the layout runs with %s\n",
				  x->name, key, hd_section_str(x->section, key), value);
		}
		free(key), free(value);
	}
}

static void add_all_exact_settings(const struct hd_plan *p, struct against_files *f)
{
	for (int i = 0; i < p->ninst; i++)
		add_exact_settings(&p->inst[i], f);
}

static int run(const struct hd_against *a, const struct against_files *f, const char *name, int64_t ranks,
	       struct hd_err *err)
{
	const char **argv = hd_alloc((3 + 2 * (HD_LEN(settings) + 5 + f->nexact + (size_t)a->nsets)) * sizeof(*argv));
	char *output = hd_format("%s/%s.out", f->dir, name);
	char *own[5] = { hd_format("train.steps=%d", STEPS), hd_format("checkpoint.dir=%s/%s", f->dir, name),
			 hd_format("log.metrics=%s/%s.jsonl", f->dir, name) };
	int n = 0, one = strcmp(name, "many") != 0, nown = 3;

	/* A plugin's loss need not be additive over micro-batches, so they must be the layout's. */
	if (one && a->plan->own_loss)
		own[nown++] = hd_format("train.micro_batch=%lld", (long long)a->plan->batch);
	if (!strcmp(name, "again"))
		own[nown++] = hd_format("model.init_std=%.17g", a->plan->model.init_std * (1 + LAST_BITS));

	argv[n++] = f->program;
	argv[n++] = "train";
	argv[n++] = one ? f->one_ini : a->conf;
	for (int i = 0; i < (one ? 0 : a->nsets); i++)
		argv[n++] = "--set", argv[n++] = a->sets[i];
	for (size_t i = 0; i < (one ? 0 : f->nexact); i++)
		argv[n++] = "--set", argv[n++] = f->exact[i];
	for (size_t i = 0; i < HD_LEN(settings); i++)
		argv[n++] = "--set", argv[n++] = settings[i];
	for (int i = 0; i < nown; i++)
		argv[n++] = "--set", argv[n++] = own[i];
	if (hd_launch_run(ranks, 5, n, (char **)(uintptr_t)argv, output))
		hd_compare_run_error(f->dir, name, err);
	for (int i = 0; i < nown; i++)
		free(own[i]);
	free(argv), free(output);
	return err->code;
}

static void remove_all(struct against_files *f)
{
	struct hd_err err = { 0 };

	if (f->dir && hd_dir_remove(f->dir, &err) < 0)
		hd_log(HD_LOG_WARN, "%s could not be removed", f->dir);
	for (size_t i = 0; i < f->nexact; i++)
		free(f->exact[i]);
	free(f->exact), free(f->inexact), free(f->dir), free(f->one_ini), free(f->program);
}

/* Returns 1 if the initial weights come from a checkpoint, whose last bits no key can change. */
static int is_loaded(const struct hd_plan *p)
{
	return *hd_section_str(hd_conf_section(p->conf, NULL, "model"), "load") != 0;
}

/* The layout differs from one rank by more than the bounds. This tests whether one rank with different rounding does,
 * too: it compares the layout again, with bounds raised by that difference. */
static int compare_again(const struct hd_against *a, const struct against_files *f, struct hd_comparison *c, FILE *out,
			 struct hd_err *err)
{
	*err = (struct hd_err){ 0 };
	HD_TRY(run(a, f, "again", 1, err));
	fprintf(out,
		"the layout again, with bounds raised by what rounding alone changes in one rank whose initial weights "
		"differ in their last bits:\n");
	c->again = 1;
	return hd_compare(c, f->dir, out, err);
}

static int both(const struct hd_against *a, struct against_files *f, FILE *out, struct hd_err *err)
{
	struct hd_comparison c = lengths(a->plan);
	int64_t ranks = a->plan->ranks;

	f->program = hd_this_program(err);
	if (!f->program)
		return err->code;
	f->dir = hd_file_temporary("heddle-against");
	if (!mkdtemp(f->dir)) {
		hd_err_set(err, HD_EIO, "%s: the directory cannot be created: %s", f->dir, strerror(errno));
		free(f->dir);
		f->dir = NULL;
		return err->code;
	}
	HD_TRY(write_one(a, f, err));
	add_all_exact_settings(a->plan, f);
	fprintf(out,
		"against one rank: %lld ranks, %d steps, with SGD in place of the INI's optimizer, no clipping, no decay",
		(long long)ranks, STEPS);
	fprintf(out, "\n%s", f->inexact ? f->inexact : "");
	fflush(out);
	HD_TRY(run(a, f, "many", ranks, err));
	HD_TRY(run(a, f, "one", 1, err));
	if (hd_compare(&c, f->dir, out, err) != HD_EINVAL || is_loaded(a->plan))
		return err->code;
	return compare_again(a, f, &c, out, err);
}

/* Starts all ranks on this host. So it refuses to run under a launcher that started ranks on other hosts: nothing would
 * test those. */
int hd_against_one_rank(const struct hd_against *a, FILE *out, struct hd_err *err)
{
	struct against_files f = { .dir = NULL };

	if (hd_launch_elsewhere())
		return hd_err_set(err, HD_ENOTSUP,
				  "--against-one-rank: the launcher has started %d ranks on other hosts, but the "
				  "comparison starts all %lld ranks of the layout on this one. Start check without a "
				  "launcher, and compare runs on several hosts by log.metrics",
				  hd_launch_elsewhere(), (long long)a->plan->ranks);
	if (hd_launch_ranks() && hd_launch_ranks() != a->plan->ranks)
		return hd_err_set(
			err, HD_EINVAL,
			"--against-one-rank: the launcher has started %d ranks, and --ranks is %lld. Start check "
			"without a launcher, or leave --ranks out",
			hd_launch_ranks(), (long long)a->plan->ranks);
	hd_launch_hold_signals(); /* held from before the directory exists until it is removed */
	both(a, &f, out, err);
	remove_all(&f);
	hd_launch_release_signals();
	return err->code;
}
