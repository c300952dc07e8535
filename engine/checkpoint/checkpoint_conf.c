/* SPDX-License-Identifier: Apache-2.0
 * The texts of a checkpoint: config.json in the form of the family, the run's INI, and where the run stood.
 *
 * The INI is completed before it is stored. What the data decided then must not be decided by other data later.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/models/decoder/hf.h"
#include "engine/config/conf_impl.h"
#include "engine/file/inside.h"
#include "engine/models/model.h"
#include "engine/process/launch.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_VERSION 1 /* of state.json */
/* Most steps, samples and tokens in it: other programs read numbers of JSON as doubles, and sums of these
 * do not overflow. */
#define MOST (1ll << 53)

/* -- writing --------------------------------------------------------------------------------- */
static char *complete_conf(const struct hd_job *j, struct hd_err *err)
{
	const struct hd_model *m = &hd_job_any_plan(j)->model;
	char *vocab = hd_format("model.vocab=%lld", (long long)m->vocab);
	char *seq = hd_format("model.max_seq=%lld", (long long)m->max_seq);
	const char *sets[] = { vocab, seq };
	char *text = hd_conf_text(j->conf), *out = NULL;
	struct hd_conf *c = NULL;

	if (hd_conf_parse(hd_conf_path(j->conf), text, sets, 2, &c, err) >= 0)
		out = hd_conf_text(c);
	hd_conf_destroy(c);
	free(vocab);
	free(seq);
	free(text);
	return out;
}

const char *hd_precision_text(const struct hd_plan *p)
{
	return p->compute_dtype == HD_DTYPE_BF16 ? "bf16" : "fp32";
}

static char *state_text(const struct hd_job *j, const struct hd_progress *at, uint64_t data_hash)
{
	const struct hd_plan *p = hd_job_any_plan(j);
	char *layout = hd_layout_text(p), *text;
	json_t *o = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s}", "version", STATE_VERSION, "step",
			      (json_int_t)at->step, "samples", (json_int_t)at->samples, "tokens",
			      (json_int_t)at->tokens, "seed", (json_int_t)j->train.seed, "ranks", (json_int_t)p->ranks,
			      "layout", layout, "precision", hd_precision_text(p), "picks", j->tuned ? j->tuned : "");

	if (j->data) {
		char *hash = hd_format("%016llx", (unsigned long long)data_hash);

		json_object_set_new(o, "data_tokens", json_integer((json_int_t)hd_data_tokens(j->data, 0)));
		json_object_set_new(o, "data_hash", json_string(hash));
		free(hash);
	}
	text = json_dumps(o, JSON_INDENT(2));
	json_decref(o);
	free(layout);
	return text;
}

static int write_text(const char *dir, const char *name, char *text, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name);
	size_t n = text ? strlen(text) : 0;
	char *all = hd_format("%s%s", text ? text : "", n && text[n - 1] == '\n' ? "" : "\n");
	int rc = text ? hd_file_write(path, all, err) : hd_err_set(err, HD_EBUG, "%s: has no text", path);

	free(path);
	free(text);
	free(all);
	return rc;
}

static char *config_text(const struct hd_job *j)
{
	const struct hd_model *m = &hd_job_any_plan(j)->model;
	json_t *o = hd_hf_config(m);
	char *text;

	if (o)
		hd_kept_special(j, o);
	text = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15))
		 : NULL; /* 1e-05 and not 1.0000000000000001e-05 */

	json_decref(o);
	return text;
}

int hd_texts_write(const struct hd_job *j, const char *dir, const struct hd_progress *at, uint64_t data_hash,
		   struct hd_err *err)
{
	HD_TRY(write_text(dir, "config.json", config_text(j), err));
	HD_TRY(hd_kept_write(j, dir, err));
	HD_TRY(write_text(dir, "heddle/conf.ini", complete_conf(j, err), err));
	return write_text(dir, "heddle/state.json", state_text(j, at, data_hash), err);
}

/* -- reading --------------------------------------------------------------------------------- */
static json_t *read_json(const char *dir, const char *name, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name), *text = hd_file_read_inside(dir, name, err);
	json_error_t at;
	json_t *o = text ? json_loads(text, 0, &at) : NULL;

	if (text && !json_is_object(o))
		hd_err_set(err, HD_EIO, "%s: is not a JSON object: %s", path, o ? "something else" : at.text);
	free(path);
	free(text);
	if (json_is_object(o))
		return o;
	json_decref(o);
	return NULL;
}

/* Returns the step that a directory's name gives, or -1 if it is no step's. */
static long long step_named(const char *dir)
{
	const char *slash = strrchr(dir, '/');

	return hd_step_of_name(slash ? slash + 1 : dir);
}

int hd_state_read(const char *dir, struct hd_progress *at, int64_t *seed, char **picks, struct hd_err *err)
{
	json_t *o = read_json(dir, "heddle/state.json", err);
	json_int_t version = 0, step = 0, samples = 0, tokens = -1, key = 0;
	const char *text = "";
	int rc = HD_OK;

	if (!o)
		return err->code;
	if (json_unpack(o, "{s:I, s:I, s:I, s?I, s:I, s?s}", "version", &version, "step", &step, "samples", &samples,
			"tokens", &tokens, "seed", &key, "picks", &text))
		rc = hd_err_set(
			err, HD_EIO,
			"%s/heddle/state.json: must have version, step, samples and seed; they and tokens are whole "
			"numbers, and picks is text",
			dir);
	else if (version > STATE_VERSION)
		rc = hd_err_set(err, HD_ENOTSUP, "%s/heddle/state.json: is version %lld; this program reads version %d",
				dir, (long long)version, STATE_VERSION);
	else if (step < 0 || samples < 0 || step > MOST || samples > MOST)
		rc = hd_err_set(err, HD_EIO,
				"%s/heddle/state.json: step %lld, samples %lld: each must be from 0 to %lld", dir,
				(long long)step, (long long)samples, MOST);
	else if (json_object_get(o, "tokens") && (tokens < samples || tokens > MOST))
		rc = hd_err_set(err, HD_EIO,
				"%s/heddle/state.json: tokens is %lld; it must be from %lld (samples) to %lld", dir,
				(long long)tokens, (long long)samples, MOST);
	else if (step_named(dir) >= 0 && step_named(dir) != step)
		rc = hd_err_set(err, HD_EIO,
				"%s/heddle/state.json: is for step %lld, but its directory is for step %lld", dir, step,
				step_named(dir));
	else if (step && !samples)
		rc = hd_err_set(err, HD_EIO, "%s/heddle/state.json: step %lld, but 0 samples", dir, step);
	*at = (struct hd_progress){ step, samples, tokens };
	*seed = key;
	*picks = hd_strdup(text);
	json_decref(o);
	return rc;
}

char *hd_checkpoint_picks(const char *path, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err), *picks = NULL;
	struct hd_progress at;
	int64_t seed;

	if (dir && hd_resumable_check(dir, err) >= 0)
		hd_state_read(dir, &at, &seed, &picks, err);
	free(dir);
	return picks;
}

/* -- the INI of a checkpoint -- */
/* Removes the sections of the layout: one rank holds everything. */
static void drop_layout(char *text)
{
	char *to = text, *line = text;
	int dropping = 0;

	while (*line) {
		size_t n = strcspn(line, "\n") + 1;

		if (!line[n - 1])
			n--;
		if (*line == '[')
			dropping = !strncmp(line, "[strategy ", 10);
		if (!dropping) {
			memmove(to, line, n);
			to += n;
		}
		line += n;
	}
	*to = 0;
}

int hd_config_check(const char *dir, const struct hd_model *m, struct hd_err *err)
{
	json_t *theirs = read_json(dir, "config.json", err), *ours = hd_hf_config(m);

	for (const struct hd_family_key *k = m->family->keys; theirs && k && k->theirs && !err->code; k++) {
		json_t *a = json_object_get(theirs, k->theirs), *b = json_object_get(ours, k->theirs);

		if (k->ours && json_is_integer(a) && json_is_integer(b) && strcmp(k->ours, "max_seq") &&
		    !json_equal(a, b))
			hd_err_set(err, HD_EINVAL, "%s/config.json: %s is %lld, but model.%s is %lld", dir, k->theirs,
				   (long long)json_integer_value(a), k->ours, (long long)json_integer_value(b));
	}
	json_decref(theirs);
	json_decref(ours);
	return err->code;
}

void hd_config_warn_of_dropout(const char *dir, const struct hd_model *m)
{
	struct hd_err ignored = { 0 };
	json_t *o = m->dropout > 0 ? read_json(dir, "config.json", &ignored) : NULL;
	double p = json_number_value(json_object_get(o, "attn_pdrop"));

	if (p > 0)
		hd_log(HD_LOG_WARN,
		       "%s/config.json: attn_pdrop is %g, but attention probabilities are never dropped: "
		       "model.dropout = %g applies to the embeddings and the outputs of each layer",
		       dir, p, m->dropout);
	json_decref(o);
}

/* Returns the family of a config.json, or NULL. If Heddle wrote it for a family that transformers has no class for, its
 * name is in there. */
static const struct hd_family *family_of(json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "model_type"));
	const char *ours = json_string_value(json_object_get(json_object_get(o, "heddle"), "family"));

	if (type && !strcmp(type, "heddle"))
		return ours ? hd_family_find(ours) : NULL;
	return type ? hd_family_of_type(type) : NULL;
}

/* Returns whether a text can be the key or value of a line in an INI, and nothing but that. A second line could
 * begin another section. */
static int is_line(const char *text)
{
	const char *p = text;

	while (p && *p && !iscntrl((unsigned char)*p))
		p++;
	return p && !*p && !strpbrk(text, "[];#");
}

static char *model_text(json_t *o, const struct hd_family *f, const char *dir, struct hd_err *err)
{
	char *path = hd_format("%s/config.json", dir), *text = NULL;
	json_t *heddle = json_object_get(o, "heddle"), *v;
	const char *key;

	if (!heddle)
		text = hd_hf_read(o, f, path, err);
	else
		hd_append(&text, "[model]\n");
	json_object_foreach(heddle, key, v) {
		if (is_line(key) && is_line(json_string_value(v)))
			hd_append(&text, "%s = %s\n", key, json_string_value(v));
		else
			hd_err_set(err, HD_EIO, "%s: heddle.%.40s must be one line of text", path, key);
	}
	free(path);
	return text;
}

/* Returns "gpt2, llama, ...", malloc'ed. */
static char *types_known(void)
{
	char *text = NULL;

	for (const char *const *name = hd_family_names(1); *name; name++)
		hd_append(&text, "%s%s", text ? ", " : "", *name);
	return text;
}

#define LONGEST 2048 /* longest sequences of `eval`: many models allow far more positions than fit */

static char *conf_of_config(const char *dir, struct hd_err *err)
{
	json_t *o = read_json(dir, "config.json", err);
	const char *type = json_string_value(json_object_get(o, "model_type")), *key = "max_seq";
	const struct hd_family *f = o ? family_of(o) : NULL;
	char *text = NULL, *known;
	int64_t seq;

	if (!o)
		return NULL;
	key = f && hd_hf_theirs(f, "max_seq") ? hd_hf_theirs(f, "max_seq") : key;
	seq = json_integer_value(json_object_get(o, key));
	if (!f) {
		known = types_known();
		hd_err_set(err, HD_ENOTSUP,
			   "%s/config.json: model_type is %s; known: %s, and those of plugins (--set NAME.file=X.so)",
			   dir, type ? type : "not given", known);
		free(known);
	} else if (seq <= 0) {
		hd_err_set(err, HD_EINVAL, "%s/config.json: has no %s", dir, key);
	}
	if (!err->code)
		text = model_text(o, f, dir, err);
	if (err->code) {
		free(text);
		text = NULL;
	}
	if (text)
		hd_append(&text, "\n[data]\ntrain = none\n\n[train]\nseq = %lld\nglobal_batch = 1\nsteps = 0\n",
			  (long long)(seq < LONGEST ? seq : LONGEST));
	json_decref(o);
	return text;
}

/* Loads the plugins of --set NAME.file=X.so. One may define the family of a directory, which is unknown without it. */
static int load_families(const char *const *sets, int nsets, struct hd_err *err)
{
	const char **files = hd_alloc((size_t)(nsets + 1) * sizeof(*files));
	struct hd_conf *c = NULL;
	int n = 0;

	for (int i = 0; i < nsets; i++) {
		const char *is = strchr(sets[i], '=');

		if (is && is - sets[i] > 5 && !strncmp(is - 5, ".file", 5))
			files[n++] = sets[i];
	}
	if (n && hd_conf_parse("the command line", "", files, n, &c, err) >= 0)
		hd_families_load(c, err);
	hd_conf_destroy(c);
	free(files);
	return err->code;
}

/* Refuses paths of code that a checkpoint gives. The user decides which code runs, and a checkpoint may be a
 * stranger's. So only names of installed plugins are accepted from it. */
static int check_code(struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	const char *key = hd_section_is(s, "plugin") ? "file" : "plugin";
	const struct hd_entry *e = hd_conf_entry_find(s, key);
	size_t n = e ? strlen(e->value) : 0;

	if (!e || e->set || (!strchr(e->value, '/') && (n < 3 || strcmp(e->value + n - 3, ".so"))))
		return HD_OK;
	return hd_section_fail(
		c, s, key, err, HD_EINVAL,
		"%s is a path, and a checkpoint may not choose the files that are run; to use this one, give --set "
		"%s.%s=%s",
		e->value, hd_section_name(s), key, e->value);
}

/* Checks an INI that comes from a checkpoint. A number of layers that the files cannot have would fill the memory
 * before a missing weight is noticed. */
static int check_origin(struct hd_conf *c, const char *dir, struct hd_err *err)
{
	const struct hd_entry *layers = hd_conf_entry_find(hd_conf_section(c, NULL, "model"), "layers");
	int64_t tensors = layers ? hd_weights_count(dir) : -1;

	for (struct hd_section *s = NULL; (s = hd_conf_next(c, NULL, s));)
		if (hd_section_is(s, "plugin") || hd_section_is(s, "strategy"))
			HD_TRY(check_code(c, s, err));
	if (layers && tensors >= 0 && strtoll(layers->value, NULL, 10) > tensors)
		return hd_err_set(err, HD_EINVAL, "%s: claims %s layers, but its files have %lld tensors", dir,
				  layers->value, (long long)tensors);
	return HD_OK;
}

int hd_checkpoint_conf(const char *path, const char *const *sets, int nsets, struct hd_conf **out, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err), *file, *text;
	struct hd_err none = { 0 };
	int rc, is_ini;

	if (!dir)
		return err->code;
	file = hd_format("%s/heddle/conf.ini", dir);
	if (hd_file_inside(dir, "heddle/conf.ini", err) < 0)
		return free(file), free(dir), err->code;
	text = hd_file_read(file, NULL, &none);
	is_ini = text != NULL;
	if (!is_ini) {
		free(file);
		file = hd_format("%s/config.json", dir);
		text = load_families(sets, nsets, err) < 0 ? NULL : conf_of_config(dir, err);
	}
	if (text && !hd_launch_mpi())
		drop_layout(text);
	rc = text ? hd_conf_parse(file, text, sets, nsets, out, err) : err->code;
	if (rc >= 0 && !is_ini)
		hd_conf_drop_lines(*out);
	if (rc >= 0 && (rc = check_origin(*out, dir, err)) < 0) {
		hd_conf_destroy(*out);
		*out = NULL;
	}
	if (rc >= 0 && hd_has_tokenizer(dir) && !hd_section_set(hd_conf_section(*out, NULL, "data"), "tokenizer"))
		hd_conf_tokenizer(*out, dir, NULL);
	free(text);
	free(file);
	free(dir);
	return rc;
}
