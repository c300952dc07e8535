/* SPDX-License-Identifier: Apache-2.0
 * When a run resumes, reports what has changed since its checkpoint, because nothing else shows it. The checkpoint
 * contains the INI that it was written with.
 */
#include <config.h>
#include "engine/train/resume.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/data/mix.h"
#include "engine/file/file.h"
#include "engine/file/inside.h"
#include "engine/file/same_file.h"
#include "engine/models/decoder/knobs.h"
#include "engine/models/model.h"
#include "engine/train/train_impl.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the step, or the number of tokens, at which the learning rate's decay ends for a
 * run at this point. 0: the rate does not fall. */
static int64_t decay_end(const struct hd_train_config *t, const struct hd_progress *at)
{
	if (t->schedule == HD_LR_CONSTANT)
		return 0;
	if (t->decay)
		return t->decay;
	return t->by_tokens ? hd_ramp_last(&t->batch, at->tokens, t->steps - at->step) : t->steps;
}

static void note_decay(const char *dir, const struct hd_train_config *was, const struct hd_train_config *is,
		       const struct hd_progress *at)
{
	const char *unit = is->by_tokens ? "token" : "step";
	int64_t then = decay_end(was, at), now = decay_end(is, at);

	/* `then` is 0 if the old run had no steps, and so no decay. */
	if (was->schedule == is->schedule && was->by_tokens == is->by_tokens && then && then != now)
		hd_log(HD_LOG_WARN,
		       "%s: the decay of the learning rate was to end at %s %lld, but now ends at %s %lld. "
		       "train.decay = %lld keeps it as it was",
		       dir, unit, (long long)then, unit, (long long)now, (long long)then);
}

/* Compares values as numbers if they are: 1e-3 is 0.001. */
static int same_value(const char *x, const char *y)
{
	char *x_end, *y_end;
	double a = strtod(x, &x_end), b = strtod(y, &y_end);

	return !strcmp(x, y) || (x_end > x && !*x_end && y_end > y && !*y_end && !(a < b) && !(a > b));
}

static int note_key(const char *dir, struct hd_conf *was, struct hd_conf *is, const char *section, const char *key,
		    const char *what)
{
	const char *x = hd_section_str(hd_conf_section(was, NULL, section), key);
	const char *y = hd_section_str(hd_conf_section(is, NULL, section), key);

	if (same_value(x, y))
		return 0;
	hd_log(HD_LOG_WARN, "%s: was made with %s.%s = %s, but it is %s now%s", dir, section, key, *x ? x : "(none)",
	       *y ? y : "(none)", what);
	return 1;
}

static int note_keys(const char *dir, struct hd_conf *was, struct hd_conf *is, const char *section,
		     const char *const *keys, const char *what)
{
	int changed = 0;

	for (; *keys; keys++)
		changed |= note_key(dir, was, is, section, *keys, what);
	return changed;
}

/* Paths may be written differently: absolute, or through a link. */
static int same_path(const char *x, const char *y)
{
	char *a = hd_file_real(x), *b = hd_file_real(y);
	int same = !strcmp(x, y) || (a && b && !strcmp(a, b));

	free(a);
	free(b);
	return same;
}

/* -- model ------------------------------------------------------------------------------------- */
/* Replaces values of 0 by the numbers they stand for. config.json gives some of
 * these numbers, where an INI leaves them open. */
static struct hd_model settled(const struct hd_model *of)
{
	struct hd_model m = *of;

	if (m.query_scale <= 0)
		m.query_scale = (double)m.head_dim;
	if (m.embed_scale <= 0)
		m.embed_scale = sqrt((double)m.embed);
	if (!m.expert_mlp)
		m.expert_mlp = m.mlp;
	if (m.rope_theta_window <= 0)
		m.rope_theta_window = m.rope_theta;
	if (m.rope_original <= 0 && m.rope_scaling != HD_ROPE_SCALING_NONE)
		m.rope_original = (double)m.max_seq;
	return m;
}

/* "w" and "ww" are the same windows. So are any two patterns if no layer has a window. */
static int same_windows(const struct hd_model *a, const struct hd_model *b)
{
	size_t na = strlen(a->window_layers), nb = strlen(b->window_layers);
	int same = 1;

	if (!na || !nb || (!a->window && !b->window))
		return na == nb || (!a->window && !b->window);
	for (size_t i = 0; i < (size_t)a->layers && same; i++)
		same = a->window_layers[i % na] == b->window_layers[i % nb];
	return same;
}

/* Returns a knob's value, with as many digits as config.json keeps. The caller frees it. */
static char *knob_value(const struct hd_model *m, const struct hd_knob *k)
{
	const char *at = (const char *)m + k->at;
	char text[80];

	if (k->kind == HD_KNOB_TEXT)
		return hd_strdup(*(const char *const *)at);
	if (k->kind == HD_KNOB_NUM)
		return hd_format("%.12g", *(const double *)at);
	hd_knob_text(m, k, text);
	return hd_strdup(text);
}

/* Compares texts by the numbers in them, ignoring blanks: "1.25,1.5" equals "1.250, 1.5". */
static int same_list(const char *x, const char *y)
{
	while (1) {
		char *to_x, *to_y;
		double a, b;

		x += strspn(x, " \t");
		y += strspn(y, " \t");
		a = strtod(x, &to_x);
		b = strtod(y, &to_y);
		if ((to_x == x) != (to_y == y) || (to_x != x && a != b) || (to_x == x && *x != *y))
			return 0;
		if (to_x == x && !*x)
			return 1;
		x = to_x == x ? x + 1 : to_x;
		y = to_y == y ? y + 1 : to_y;
	}
}

static int same_value_of(const struct hd_model *a, const struct hd_model *b, const struct hd_knob *k)
{
	char *x = knob_value(a, k), *y = knob_value(b, k);
	int same = !strcmp(k->key, "window_layers") ? same_windows(a, b) : same_list(x, y);

	free(x);
	free(y);
	return same;
}

/* Returns whether a knob is the same, as given or after defaults. If both models leave it open, it follows a different
 * key, which is reported itself. */
static int same_knob(const struct hd_model *was, const struct hd_model *is, const struct hd_knob *k)
{
	struct hd_model a = settled(was), b = settled(is);

	return same_value_of(was, is, k) || same_value_of(&a, &b, k);
}

/* Returns a value for the message: from the INI or the key's default, or, if the family or the engine chose it, from
 * the model. The caller frees it. */
static char *value_text(struct hd_section *s, const struct hd_model *m, const struct hd_knob *k)
{
	if (hd_section_has(s, k->key) || (!k->derived && !hd_family_default(m->family, k->key)))
		return hd_strdup(hd_section_str(s, k->key));
	return knob_value(m, k);
}

static void note_knob(const char *dir, struct hd_conf *was, struct hd_conf *is, const struct hd_model *then,
		      const struct hd_model *now, const struct hd_knob *k)
{
	struct hd_section *s = hd_conf_section(is, NULL, "model");
	char *x, *y;

	/* If only the sequences are longer, the change is in train.seq. */
	if (same_knob(then, now, k) || (!strcmp(k->key, "max_seq") && !hd_section_has(s, k->key)))
		return;
	x = value_text(hd_conf_section(was, NULL, "model"), then, k);
	y = value_text(s, now, k);
	hd_log(HD_LOG_WARN, "%s: was made with model.%s = %s, but it is %s now", dir, k->key, x, y);
	free(x);
	free(y);
}

/* The weights are the checkpoint's, whatever model.load names. Of that, only the keys of [model] are read. */
static void note_load(const char *dir, struct hd_conf *was, struct hd_conf *is)
{
	const char *now = hd_section_str(hd_conf_section(is, NULL, "model"), "load");
	const char *then = hd_section_str(hd_conf_section(was, NULL, "model"), "load");
	struct hd_err none = { 0 };
	char *found = *now ? hd_checkpoint_find(now, &none) : NULL;

	if (*now && access(now, F_OK))
		hd_log(HD_LOG_WARN, "%s: model.load = %s is not there: the keys of [model] are the checkpoint's", dir,
		       now);
	else if (found && !same_path(then, now) && !same_path(found, dir))
		note_key(dir, was, is, "model", "load",
			 ": the weights are the checkpoint's. To begin from other weights, give a different "
			 "checkpoint.dir");
	free(found);
}

/* Reads the model of a conf. Some of its keys depend on those of [train]. */
static int read_model(struct hd_conf *c, struct hd_model *m, struct hd_err *err)
{
	struct hd_train_config t;

	HD_TRY(hd_train_config_read(c, &t, err));
	HD_TRY(hd_section_check(c, hd_conf_section(c, NULL, "model"), &hd_model_keys, 1, err));
	return hd_model_read(c, 0, m, err);
}

/* Reports changes of the model. Its weights would not fit a different shape; with other changes the run would continue
 * as a different model. Values are compared, whether they come from the INI, from model.load or from the family. */
static void note_model(const char *dir, struct hd_conf *was, const struct hd_job *j)
{
	static const char *const no_knobs[] = { "family", "group_tokens", "second_expert", "z_loss", NULL };
	const struct hd_model *now = &hd_job_any_plan(j)->model;
	struct hd_model then;
	struct hd_err why = { 0 };

	if (read_model(was, &then, &why) < 0) {
		hd_log(HD_LOG_WARN, "%s: changes to [model] since it was made cannot be determined: %s", dir, why.text);
		return;
	}
	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k))
		note_knob(dir, was, j->conf, &then, now, k);
	note_keys(dir, was, j->conf, "model", no_knobs, "");
	note_load(dir, was, j->conf);
}

void hd_load_notes(const struct hd_job *j, const char *dir)
{
	struct hd_conf *was = NULL;
	struct hd_model then;
	struct hd_err none = { 0 };

	if (!j->world.rank && hd_checkpoint_conf(dir, NULL, 0, &was, &none) >= 0 && read_model(was, &then, &none) >= 0)
		for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k))
			if (!k->trains)
				note_knob(dir, was, j->conf, &then, &hd_job_any_plan(j)->model, k);
	hd_conf_destroy(was);
}

/* -- data -------------------------------------------------------------------------------------- */
static const char *data_key(struct hd_conf *c, const char *key)
{
	return hd_section_str(hd_conf_section(c, NULL, "data"), key);
}

/* "7, 3" and "0.7,0.3" are the same shares. For a single file, so are any two. */
static int same_weights(const char *x, const char *y, size_t files)
{
	struct hd_names words = { 0 };
	struct hd_mix a = { 0 }, b = { 0 };
	struct hd_err none = { 0 };
	int same;

	hd_names_split(&words, x);
	same = *x && *y && hd_mix_read(x, words.n, &a, &none) >= 0 && hd_mix_read(y, words.n, &b, &none) >= 0 &&
	       !memcmp(a.weights, b.weights, words.n * sizeof(*a.weights));
	hd_names_release(&words);
	hd_mix_release(&a);
	hd_mix_release(&b);
	return same || files == 1;
}

/* *files: the number of names if both lists have the same number, else 0. */
static int same_files(const char *x, const char *y, size_t *files)
{
	struct hd_names a = { 0 }, b = { 0 };
	int same;

	hd_names_split(&a, x);
	hd_names_split(&b, y);
	same = a.n == b.n;
	*files = same ? a.n : 0;
	for (size_t i = 0; i < a.n && same; i++)
		same = same_path(a.all[i], b.all[i]);
	hd_names_release(&a);
	hd_names_release(&b);
	return same;
}

/* Returns the fraction of data.train that is left out of training. */
static double cut_off(struct hd_conf *c)
{
	return *data_key(c, "valid") ? 0 : hd_section_num(hd_conf_section(c, NULL, "data"), "valid_fraction");
}

/* Compares the number of tokens of data.train, and a hash of some of its samples. The hash
 * also depends on seed, seq, order and weights. */
enum contents { CONTENTS_SAME, CONTENTS_OTHER, CONTENTS_UNKNOWN };

static enum contents compare_contents(const char *dir, const struct hd_job *j, int64_t *tokens)
{
	char *path = hd_format("%s/heddle/state.json", dir), hash[32];
	json_t *o = json_load_file(path, 0, NULL);
	const char *then = json_string_value(json_object_get(o, "data_hash"));
	int same_seed = json_integer_value(json_object_get(o, "seed")) == j->train.seed;
	enum contents is = CONTENTS_UNKNOWN;

	*tokens = json_integer_value(json_object_get(o, "data_tokens"));
	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)hd_data_fingerprint(j->data));
	if (*tokens && *tokens != hd_data_tokens(j->data, 0))
		is = CONTENTS_OTHER;
	else if (*tokens && then && same_seed)
		is = strcmp(then, hash) ? CONTENTS_OTHER : CONTENTS_SAME;
	json_decref(o);
	free(path);
	return is;
}

/* Reports files with the same names but different contents. */
static void note_contents(const char *dir, const struct hd_job *j)
{
	int64_t then, now = hd_data_tokens(j->data, 0);

	if (compare_contents(dir, j, &then) != CONTENTS_OTHER)
		return;
	if (then != now)
		hd_log(HD_LOG_WARN, "%s: the data of data.train have changed: %lld tokens then, %lld now", dir,
		       (long long)then, (long long)now);
	else
		hd_log(HD_LOG_WARN,
		       "%s: the data of data.train have changed: the same number of tokens, but different ones", dir);
}

static const char others[] = ": from here on the batches are different";

/* Reports keys that change the batches, whatever the files contain. Returns whether any did. */
static int note_order(const char *dir, struct hd_conf *was, struct hd_conf *is, size_t files)
{
	static const char *const data[] = { "order", NULL }, *const train[] = { "seq", NULL };
	double d = cut_off(was) - cut_off(is);
	const char *cut = d < 0 || d > 0 ? others : "";
	int changed = note_keys(dir, was, is, "data", data, others) | note_keys(dir, was, is, "train", train, others);
	size_t valid;

	if (!same_weights(data_key(was, "weights"), data_key(is, "weights"), files))
		changed |= note_key(dir, was, is, "data", "weights", others);
	if (!same_files(data_key(was, "valid"), data_key(is, "valid"), &valid))
		note_key(dir, was, is, "data", "valid", cut);
	note_key(dir, was, is, "data", "valid_fraction", cut);
	return changed || *cut;
}

/* Reports changes of the data. A file with a different name may be a copy, of
 * which only some samples are known to be the same. */
static void note_data(const char *dir, const struct hd_job *j, struct hd_conf *was)
{
	static const char *const how[] = { "format", "field", NULL };
	struct hd_conf *is = j->conf;
	size_t files;
	int64_t tokens;
	int same = same_files(data_key(was, "train"), data_key(is, "train"), &files);
	int changed = note_order(dir, was, is, files);
	const char *what = others;

	if (!changed && compare_contents(dir, j, &tokens) == CONTENTS_SAME)
		what = ", with the same number of tokens: the samples that were compared are the same";
	if (!same)
		changed |= note_key(dir, was, is, "data", "train", what);
	changed |= note_keys(dir, was, is, "data", how, what);
	if (!changed)
		note_contents(dir, j);
}

/* Parses the checkpoint's INI. If that names a plugin, its code is not loaded here. */
static int parse_conf(const char *dir, struct hd_conf **out, struct hd_err *err)
{
	char *path = hd_format("%s/heddle/conf.ini", dir), *text = hd_file_read_inside(dir, "heddle/conf.ini", err);
	int rc = text ? hd_conf_parse(path, text, NULL, 0, out, err) : err->code;

	free(text);
	free(path);
	return rc;
}

/* Reads the INI that the checkpoint was written with. NULL: it cannot be read. A warning says why,
 * unless a different program wrote the checkpoint. */
static struct hd_conf *read_conf(const char *dir, struct hd_train_config *was)
{
	struct hd_err why = { 0 };
	struct hd_conf *c = NULL;

	if (parse_conf(dir, &c, &why) >= 0 && hd_train_config_read(c, was, &why) >= 0)
		hd_section_check(c, hd_conf_section(c, NULL, "data"), &hd_data_keys, 1, &why);
	if (!why.code)
		return c;
	if (hd_file_has(dir, "heddle/state.json"))
		hd_log(HD_LOG_WARN, "%s: changes since it was made cannot be determined: %s", dir, why.text);
	hd_conf_destroy(c);
	return NULL;
}

/* Compares the precisions in effect. An INI without the key has a different one on another device. Earlier checkpoints
 * have only the key. */
static void note_precision(const char *dir, const struct hd_job *j, struct hd_conf *was)
{
	char *path = hd_format("%s/heddle/state.json", dir);
	json_t *o = json_load_file(path, 0, NULL);
	const char *then = json_string_value(json_object_get(o, "precision")),
		   *now = hd_precision_text(hd_job_any_plan(j));
	int given = hd_section_has(hd_conf_section(j->conf, NULL, "train"), "precision");

	if (!then)
		note_key(dir, was, j->conf, "train", "precision", "");
	else if (strcmp(then, now) != 0)
		hd_log(HD_LOG_WARN, "%s: was made with train.precision = %s, but it is %s now%s", dir, then, now,
		       given ? "" : ", the default of this device");
	json_decref(o);
	free(path);
}

static void note_all(const char *dir, const struct hd_job *j, struct hd_conf *c, const struct hd_train_config *was,
		     const struct hd_progress *at)
{
	static const char *const rates[] = {
		"lr",    "min_lr", "schedule", "warmup",       "schedule_unit",     "optimizer", "weight_decay",
		"beta1", "beta2",  "eps",      "global_batch", "global_batch_ramp", "clip",      NULL
	};

	note_keys(dir, c, j->conf, "train", rates, "");
	note_precision(dir, j, c);
	note_decay(dir, was, &j->train, at);
	note_model(dir, c, j);
	note_data(dir, j, c);
}

void hd_resume_notes(const struct hd_job *j, const char *path, const struct hd_progress *at)
{
	struct hd_err none = { 0 };
	struct hd_train_config was;
	struct hd_conf *c = NULL;
	char *dir = j->world.rank ? NULL : hd_checkpoint_find(path, &none);

	if (dir)
		c = read_conf(dir, &was);
	if (c)
		note_all(dir, j, c, &was, at);
	hd_conf_destroy(c);
	free(dir);
}

/* -- what to resume from --------------------------------------------------------------------------- */
int hd_train_in_dir(const struct train_loop *l, const char *path)
{
	return hd_train_saves(l) && hd_step_is_in(path, l->j->checkpoint.dir);
}

int hd_train_choose(struct train_loop *l, char **resume)
{
	struct hd_conf *c = l->j->conf;

	hd_checkpoint_choose(c, resume, l->err);
	HD_TRY(hd_comm_agree(l->err));
	if (hd_comm_max(*resume != NULL) > 0 && !*resume) {
		char *here = hd_rank_text(l->j->world.rank);

		hd_section_fail(
			c, hd_conf_section(c, NULL, "checkpoint"), "dir", l->err, HD_EIO,
			"%s finds no checkpoint in %s, but other ranks have found one in theirs: all hosts must "
			"share it",
			here, l->j->checkpoint.dir);
		free(here);
	}
	return hd_comm_agree(l->err);
}
