/* SPDX-License-Identifier: Apache-2.0
 * The beginning and end of a subcommand: its INI, its data, the ranks of mpirun or a plan without them, and the one
 * message.
 */
#include <config.h>
#include "engine/command/command.h"
#include "engine/graph/mesh.h"
#include "engine/human/human.h"
#include "engine/process/affinity.h"
#include "engine/process/asked.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/process/launch.h"
#include "engine/text/tokenizer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hd_cli_conf(const struct hd_cli *c, struct hd_conf **conf, struct hd_err *err)
{
	if (!c->positional)
		return hd_err_set(err, HD_EINVAL, "%s: which INI file?", c->verb->name);
	HD_TRY(hd_conf_read(c->positional, c->sets, c->nsets, conf, err));
	HD_TRY(hd_model_load_conf(*conf, err));
	return hd_plan_sections(*conf, err);
}

/* Read [train] before it is checked, since the start of the process depends on these numbers. Errors are reported
 * later. */
static int wanted_threads(struct hd_conf *conf)
{
	struct hd_train_config t;
	struct hd_err ignored = { 0 };

	return hd_train_config_read(conf, &t, &ignored) < 0 ? 0 : t.threads;
}

static double wanted_watchdog(struct hd_conf *conf)
{
	struct hd_train_config t;
	struct hd_err ignored = { 0 };

	return conf && hd_train_config_read(conf, &t, &ignored) >= 0 ? t.watchdog : 300;
}

int hd_start(const struct hd_cli *c, struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	j->started = c->started;
	j->threads = hd_affinity_setup(c->argc, c->argv, !err->code ? wanted_threads(conf) : 1);
	if (hd_comm_open(&j->world, err) < 0 && !j->world.size)
		return err->code;
	hd_log_init(j->world.rank == 0, HD_LOG_INFO);
	if (hd_affinity_note())
		hd_log(HD_LOG_INFO, "%s", hd_affinity_note());
	hd_comm_watchdog(wanted_watchdog(!err->code ? conf : NULL));
	HD_TRY(hd_comm_agree(err));
	return j->world.size > 1 ? hd_ranks_alike(conf, err) : HD_OK;
}

/* The watchdog is off while the data are opened. A host that tokenizes a long text may need hours longer than one that
 * already has the ids. */
int hd_start_data(struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	hd_comm_watchdog(0); /* off */
	hd_cli_data(conf, &j->data, err);
	hd_comm_agree(err);
	hd_comm_watchdog(wanted_watchdog(!err->code ? conf : NULL));
	HD_TRY(err->code);
	hd_data_warn(j->data);
	return j->world.size > 1 ? hd_data_alike(j->data, err) : HD_OK;
}

/* Prints the command that starts a layout of several ranks, if it was started as a single process. */
static void advise(const struct hd_cli *c, const struct hd_job *j, const struct hd_err *err)
{
	char *command = hd_launch_command(j->needs, j->save_seconds, "", c->argc, c->argv);

	hd_log(HD_LOG_ERROR, "%s; start it with\n\t%s", err->text, command);
	free(command);
}

int hd_finish(const struct hd_cli *c, struct hd_job *j, struct hd_err *err)
{
	int single = j->world.size <= 1, status = j->stopped == HD_STOPPED_SAVED ? 0 : 1;

	fflush(stdout);
	if (!err->code) {
		hd_comm_close();
		return 0;
	}
	if (!single && !err->agreed)
		hd_comm_end_with(err->text);
	if (single && j->needs > 1)
		advise(c, j, err);
	else if (j->world.rank == 0)
		hd_log(HD_LOG_ERROR, "%s", err->text);
	if (j->stopped && hd_end_requested_by_launcher())
		hd_comm_leave(status);
	if (j->world.size)
		hd_comm_close();
	return status;
}

int hd_cli_end(int rc)
{
	errno = 0;
	if ((!fflush(stdout) && !ferror(stdout)) || rc)
		return rc;
	hd_log(HD_LOG_ERROR, "standard output could not be written completely%s%s", errno ? ": " : "",
	       errno ? strerror(errno) : "");
	return 1;
}

int hd_cli_data(struct hd_conf *conf, struct hd_data **data, struct hd_err *err)
{
	struct hd_section *m = hd_conf_section(conf, NULL, "model");
	struct hd_checkpoint_config checkpoint;
	struct hd_log_config log;
	struct hd_train_config t;

	HD_TRY(hd_train_config_read(conf, &t, err));
	HD_TRY(hd_section_check(conf, m, &hd_model_keys, 1, err));
	HD_TRY(hd_checkpoint_config_read(conf, &checkpoint, err));
	HD_TRY(hd_log_config_read(conf, &log, err));
	return hd_data_open(conf, t.seq, hd_section_int(m, "vocab"), (uint64_t)t.seed, data, err);
}

/* -- a plan without ranks -------------------------------------------------------------------------------- */
static int data_vocab(struct hd_conf *conf, const struct hd_train_config *t, int64_t *vocab, struct hd_err *err)
{
	struct hd_section *m = hd_conf_section(conf, NULL, "model");
	struct hd_data *d = NULL;
	struct hd_err why = { 0 };

	HD_TRY(hd_section_check(conf, m, &hd_model_keys, 1, err));
	*vocab = 256;
	if (hd_data_open(conf, t->seq, hd_section_int(m, "vocab"), 1, &d, &why) >= 0)
		*vocab = hd_data_vocab(d);
	else if (!hd_section_int(m, "vocab")) /* if vocab is given, the data need not exist */
		return hd_err_set(err, why.code, "%s", why.text);
	hd_data_close(d);
	return HD_OK;
}

int hd_cli_plan_options(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan_options *o,
			struct hd_err *err)
{
	struct hd_train_config train;

	*o = (struct hd_plan_options){ .train = 1, .node_size = node_size };
	HD_TRY(hd_cli_conf(c, conf, err));
	HD_TRY(hd_train_config_read(*conf, &train, err));
	HD_TRY(data_vocab(*conf, &train, &o->data_vocab, err));
	o->gelu = train.device == HD_DEVICE_CUDA || (c->gpu_kernels && train.device != HD_DEVICE_CPU);
	o->no_multi_output_kernels = o->gelu;
	o->own_memory = o->gelu || (c->device_memory && train.device != HD_DEVICE_CPU);
	o->undivided_logits = c->undivided_logits;
	o->separate_residual_adds = c->separate_residual_adds;
	o->separate_loss_gradient = c->separate_loss_gradient;
	o->compute_dtype = hd_precision_asked(&train, o->own_memory); /* the machine's, not this host's */
	o->after = hd_cli_str(c, "after", NULL);
	HD_TRY(hd_cli_int(c, "ranks", 1, 10000000, c->ranks ? c->ranks : 1, &o->ranks, err));
	o->node_size = node_size < 0 ? o->ranks : node_size;
	return HD_OK;
}

int hd_cli_plan(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err)
{
	struct hd_plan_options o;
	struct hd_err why = { 0 };
	int64_t needs = 0;

	HD_TRY(hd_cli_plan_options(c, node_size, conf, &o, err));
	if (!hd_cli_has(c, "ranks") && !c->ranks) { /* use the number of ranks that the layout needs */
		o.needs = &needs;
		if (hd_plan_create(*conf, &o, p, &why) >= 0)
			return HD_OK;
		if (!needs)
			return hd_err_set(err, why.code, "%s", why.text);
		o.ranks = needs;
		o.node_size = node_size < 0 ? needs : node_size;
		o.needs = NULL;
	}
	return hd_plan_create(*conf, &o, p, err);
}

int hd_cli_run(struct hd_cli *c, int (*what)(struct hd_cli *, struct hd_conf **, struct hd_plan **, struct hd_err *))
{
	struct hd_conf *conf = NULL;
	struct hd_plan *p = NULL;
	struct hd_err err = { 0 };

	what(c, &conf, &p, &err);
	if (err.code) {
		fflush(stdout);
		hd_log(HD_LOG_ERROR, "%s", err.text);
	}
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
	return err.code ? 1 : 0;
}

const char *hd_memory_case(const struct hd_plan *p)
{
	switch (hd_rows_case(p)) {
	case HD_ROWS_ANY: return "largest";
	case HD_ROWS_SOME: return "expert_rows";
	default: return NULL;
	}
}

void hd_memory_case_print(const struct hd_plan *p)
{
	enum hd_rows_case which = hd_rows_case(p);

	if (which == HD_ROWS_ANY)
		puts("memory is that of the largest case, in which all tokens choose experts of one rank; "
		     "train.expert_rows or model.capacity_factor limits it");
	else if (which == HD_ROWS_SOME)
		printf("memory holds %g times the rows of equal choices of experts (train.expert_rows)\n",
		       p->config.expert_rows);
}

void hd_warn_of_peak(const struct hd_machine *m, uint32_t dtype)
{
	if (dtype == HD_DTYPE_BF16 && m->bf16_is_fp32)
		hd_log(HD_LOG_WARN, "plan: %s has no flops_bf16: bf16 is counted at the peak of fp32, %s", m->name,
		       hd_human_rate(m->flops_fp32).text);
}

void hd_batch_hint_print(const struct hd_plan *p)
{
	char *hint = hd_plan_batch_hint(p);

	if (hint)
		printf("%s\n", hint);
	free(hint);
}

void hd_mesh_print(const struct hd_plan *p)
{
	printf("%lld rank%s", (long long)p->ranks, hd_plural(p->ranks, "s"));
	for (int a = 0; a < p->naxes; a++) {
		char *axis = hd_axis_text(p->axes[a]);

		printf("%s%s (%lld apart)", a ? " x " : " = ", axis, (long long)p->axes[a]->stride);
		free(axis);
	}
	printf("\n%lld replica%s x %lld micro-batch%s of %lld sequence%s of %lld tokens; bubble %.3f\n",
	       (long long)p->replicas, hd_plural(p->replicas, "s"), (long long)p->micros, hd_plural(p->micros, "es"),
	       (long long)p->micro_batch, hd_plural(p->micro_batch, "s"), (long long)p->model.seq, hd_plan_bubble(p));
	hd_batch_hint_print(p);
}

int hd_cli_program_options(struct hd_plan *p, struct hd_program_options *o, struct hd_err *err)
{
	struct hd_checkpoint_config k;

	HD_TRY(hd_checkpoint_config_read(p->conf, &k, err));
	*o = (struct hd_program_options){ .device = hd_device_cpu(),
					  .keep_gradients = k.gradients,
					  .snapshot = k.async };
	return HD_OK;
}

struct hd_program *hd_cli_program(struct hd_plan *p, int64_t rank, struct hd_err *err)
{
	struct hd_program_options o;
	struct hd_program *g = NULL;

	if (hd_cli_program_options(p, &o, err) < 0)
		return NULL;
	o.rank = rank;
	hd_program_build(p, &o, &g, err);
	return g;
}

/* -- a run on a checkpoint -------------------------------------------------------------------------------- */
/* Warns if --tokenizer replaces the checkpoint's own tokenizer by a different one, whose ids mean nothing to the
 * model. */
static void warn_of_tokenizer(const struct hd_cli *c, const char *own)
{
	const char *given = hd_cli_str(c, "tokenizer", ""), *verb = c->verb->name;
	struct hd_tokenizer *a = NULL, *b = NULL;
	struct hd_err ignored = { 0 };

	/* a tokenizer that this program cannot read is a reason to give another */
	if (hd_tokenizer_open(own, &a, &ignored) < 0)
		return;
	if (!strcmp(given, "byte"))
		hd_log(HD_LOG_WARN, "%s: --tokenizer byte: 256 ids instead of the %lld of %s", verb,
		       (long long)hd_tokenizer_vocab(a), hd_tokenizer_path(a));
	else if (hd_tokenizer_open(given, &b, &ignored) >= 0 && hd_tokenizer_hash(a) != hd_tokenizer_hash(b))
		hd_log(HD_LOG_WARN, "%s: --tokenizer %s: another file, with %lld ids, instead of the %lld of %s", verb,
		       given, (long long)hd_tokenizer_vocab(b), (long long)hd_tokenizer_vocab(a), hd_tokenizer_path(a));
	hd_tokenizer_close(a);
	hd_tokenizer_close(b);
}

/* Whether set, "section.key=value", is of one of the keys. A key ends with = or, for all of a section, with a point. */
static int is_of(const char *set, const char *const *keys, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strncmp(set, keys[i], strlen(keys[i])))
			return 1;
	return 0;
}

void hd_cli_warn_unread(const struct hd_cli *c)
{
	static const char *const of_training[] = { "log.", "checkpoint.",
						   "train.steps=", "train.eval_every=", "train.eval_batches=" };
	static const char *const of_updates[] = {
		"train.optimizer=",     "train.lr=",
		"train.min_lr=",        "train.schedule=",
		"train.warmup=",        "train.decay=",
		"train.schedule_unit=", "train.weight_decay=",
		"train.beta1=",         "train.beta2=",
		"train.eps=",           "train.clip=",
		"train.hash_every=",    "train.global_batch_ramp=",
	};
	const char *verb = c->verb->name;
	int updates = !strcmp(verb, "bench");

	for (int i = 0; i < c->nsets; i++) {
		if (is_of(c->sets[i], of_training, HD_LEN(of_training)) ||
		    (!updates && is_of(c->sets[i], of_updates, HD_LEN(of_updates))))
			hd_log(HD_LOG_WARN, "%s: --set %s does nothing: only training reads it", verb, c->sets[i]);
		if (!strcmp(verb, "generate") && !strncmp(c->sets[i], "train.seed=", strlen("train.seed=")))
			hd_log(HD_LOG_WARN, "generate: --set %s does nothing: --seed draws other texts", c->sets[i]);
	}
}

int hd_checkpoint_start(const struct hd_cli *c, struct hd_job *j, struct hd_err *err)
{
	char *own = NULL;
	int rc;

	if (!c->positional)
		hd_err_set(err, HD_EINVAL, "%s: which checkpoint?", c->verb->name);
	else
		hd_checkpoint_conf(c->positional, c->sets, c->nsets, &j->conf, err);
	if (!err->code && hd_cli_has(c, "tokenizer")) {
		own = hd_checkpoint_own_tokenizer(c->positional);
		hd_conf_tokenizer(j->conf, hd_cli_str(c, "tokenizer", ""), "--tokenizer");
	}
	rc = hd_start(c, j, j->conf, err);
	if (rc >= 0 && own && !j->world.rank)
		warn_of_tokenizer(c, own);
	if (rc >= 0)
		hd_cli_warn_unread(c);
	free(own);
	return rc;
}

int hd_checkpoint_open(const struct hd_cli *c, struct hd_job *j, unsigned roles, struct hd_err *err)
{
	HD_TRY(hd_job_open(j, j->conf, roles, NULL, err));
	return hd_checkpoint_weights(j, c->positional, err);
}

int64_t hd_checkpoint_vocab(const struct hd_job *j)
{
	int64_t vocab = hd_section_int(hd_conf_section(j->conf, NULL, "model"), "vocab");

	return vocab ? vocab : 256;
}

int hd_checkpoint_tokenizer(const struct hd_cli *c, struct hd_job *j, const char *what, struct hd_tokenizer **t,
			    struct hd_err *err)
{
	int64_t vocab;
	struct hd_section *data = hd_conf_section(j->conf, NULL, "data");
	const char *verb = c->verb->name;

	*t = NULL;
	HD_TRY(hd_section_check(j->conf, hd_conf_section(j->conf, NULL, "model"), &hd_model_keys, 1, err));
	if (hd_cli_has(c, "ids"))
		return HD_OK;
	vocab = hd_checkpoint_vocab(j);
	HD_TRY(hd_data_text_tokenizer(j->conf, what, 0, t, err));
	if (*t && hd_tokenizer_vocab(*t) > vocab)
		return hd_err_set(err, HD_EINVAL, "%s: %s has %lld tokens, but the model's vocab is %lld", verb,
				  hd_tokenizer_path(*t), (long long)hd_tokenizer_vocab(*t), (long long)vocab);
	if (*t || vocab == 256 || (vocab > 256 && hd_section_has(data, "tokenizer")))
		return HD_OK;
	if (vocab < 256)
		return hd_err_set(err, HD_EINVAL, "%s: the vocabulary has %lld entries, but text as bytes needs 256",
				  verb, (long long)vocab);
	return hd_err_set(
		err, HD_EINVAL,
		"%s: the model's vocab of %lld is not that of bytes, and there is no tokenizer.json in %s: put it "
		"there, or give --tokenizer DIR%s%s",
		verb, (long long)vocab, c->positional, strcmp(verb, "generate") ? "" : ", or the prompt as ids (--ids)",
		hd_tokenizer_advice(c->positional));
}
