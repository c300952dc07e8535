/* SPDX-License-Identifier: Apache-2.0
 * What is not as it was when a run goes on: said, because nothing else shows it.  The checkpoint has the INI that it was made
 * with.
 */
#include <config.h>
#include "engine/train/resume.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/data/mix.h"
#include "engine/file/inside.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The step, or the tokens, at which the decay of a run that stands there ends; 0: the rate does not fall. */
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

	/* A run of no steps has none. */
	if (was->schedule == is->schedule && was->by_tokens == is->by_tokens && then && then != now)
		hd_log(HD_LOG_WARN,
		       "%s: the decay of the learning rate was to end at %s %lld, and now ends at %s %lld. "
		       "train.decay = %lld keeps it as it was",
		       dir, unit, (long long)then, unit, (long long)now, (long long)then);
}

/* 1e-3 is 0.001. */
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
	hd_log(HD_LOG_WARN, "%s: was made with %s.%s = %s, and it is %s now%s", dir, section, key, *x ? x : "(none)",
	       *y ? y : "(none)", what);
	return 1;
}

/* "7, 3" and "0.7,0.3" are the same shares. */
static int same_weights(const char *x, const char *y)
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
	return same;
}

static int note_weights(const char *dir, struct hd_conf *was, struct hd_conf *is, const char *what)
{
	const char *x = hd_section_str(hd_conf_section(was, NULL, "data"), "weights");
	const char *y = hd_section_str(hd_conf_section(is, NULL, "data"), "weights");

	return same_weights(x, y) ? 0 : note_key(dir, was, is, "data", "weights", what);
}

static int note_keys(const char *dir, struct hd_conf *was, struct hd_conf *is, const char *section,
		     const char *const *keys, const char *what)
{
	int changed = 0;

	for (; *keys; keys++)
		changed |= note_key(dir, was, is, section, *keys, what);
	return changed;
}

/* Of another shape its weights would not fit; the others would go on in another model.  With model.load the keys are the
 * weights' own.  A checkpoint always says its vocab and max_seq. */
static void note_model(const char *dir, struct hd_conf *was, struct hd_conf *is)
{
	struct hd_section *now = hd_conf_section(is, NULL, "model"), *then = hd_conf_section(was, NULL, "model");
	struct hd_err none = { 0 };

	if (hd_section_check(was, then, &hd_model_keys, 1, &none) < 0 || hd_section_has(now, "load") ||
	    hd_section_has(then, "load"))
		return;
	for (uint32_t i = 0; i < hd_model_keys.n; i++) {
		const char *key = hd_model_keys.keys[i].key;

		if (hd_section_has(now, key) || (strcmp(key, "vocab") && strcmp(key, "max_seq")))
			note_key(dir, was, is, "model", key, "");
	}
}

/* Files of the same names with other contents. */
static void note_contents(const char *dir, const struct hd_job *j)
{
	char *path = hd_format("%s/heddle/state.json", dir), hash[32];
	json_t *o = json_load_file(path, 0, NULL);
	json_int_t tokens = json_integer_value(json_object_get(o, "data_tokens"));
	const char *then = json_string_value(json_object_get(o, "data_hash"));
	int64_t now = hd_data_tokens(j->data, 0);

	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)hd_data_fingerprint(j->data));
	if (tokens && tokens != now)
		hd_log(HD_LOG_WARN, "%s: the data of data.train have changed: %lld tokens then, %lld now", dir,
		       (long long)tokens, (long long)now);
	else if (then && strcmp(then, hash) && json_integer_value(json_object_get(o, "seed")) == j->train.seed)
		hd_log(HD_LOG_WARN, "%s: the data of data.train have changed: as many tokens, but others", dir);
	json_decref(o);
	free(path);
}

static int is_there(const char *dir, const char *name)
{
	char *path = hd_format("%s/%s", dir, name);
	int there = !access(path, F_OK);

	free(path);
	return there;
}

static int note_data(const char *dir, struct hd_conf *was, struct hd_conf *is)
{
	static const char *const data[] = { "train", "valid", "valid_fraction", "format", "field", "order", NULL };
	static const char *const train[] = { "seq", NULL };
	static const char others[] = ": from here on the batches are other ones";
	int changed = note_keys(dir, was, is, "data", data, others) | note_weights(dir, was, is, others);

	return changed || note_keys(dir, was, is, "train", train, others);
}

/* Of a run with a plugin it names code, which is not loaded here. */
static int parse_conf(const char *dir, struct hd_conf **out, struct hd_err *err)
{
	char *path = hd_format("%s/heddle/conf.ini", dir), *text = hd_file_read_inside(dir, "heddle/conf.ini", err);
	int rc = text ? hd_conf_parse(path, text, NULL, 0, out, err) : err->code;

	free(text);
	free(path);
	return rc;
}

/* The INI that the checkpoint was made with. NULL: it cannot be read. A warning says why, unless another program made the
 * checkpoint. */
static struct hd_conf *read_conf(const char *dir, struct hd_train_config *was)
{
	struct hd_err why = { 0 };
	struct hd_conf *c = NULL;

	if (parse_conf(dir, &c, &why) >= 0 && hd_train_config_read(c, was, &why) >= 0)
		hd_section_check(c, hd_conf_section(c, NULL, "data"), &hd_data_keys, 1, &why);
	if (!why.code)
		return c;
	if (is_there(dir, "heddle/state.json"))
		hd_log(HD_LOG_WARN, "%s: changes since it was made are not known: %s", dir, why.text);
	hd_conf_destroy(c);
	return NULL;
}

static void note_all(const char *dir, const struct hd_job *j, struct hd_conf *c, const struct hd_train_config *was,
		     const struct hd_progress *at)
{
	static const char *const rates[] = {
		"lr",    "min_lr", "schedule", "warmup",    "schedule_unit", "optimizer",         "weight_decay",
		"beta1", "beta2",  "eps",      "precision", "global_batch",  "global_batch_ramp", "clip",
		NULL
	};

	note_keys(dir, c, j->conf, "train", rates, "");
	note_decay(dir, was, &j->train, at);
	note_model(dir, c, j->conf);
	if (!note_data(dir, c, j->conf))
		note_contents(dir, j);
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
