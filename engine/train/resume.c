/* SPDX-License-Identifier: Apache-2.0
 * What is not as it was when a run goes on: said, because nothing else shows it.  The checkpoint has the INI that it was made
 * with.
 */
#include <config.h>
#include "engine/train/resume.h"
#include "engine/checkpoint/checkpoint.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The step, or the tokens, at which the decay of a run ends; 0: the rate does not fall. */
static int64_t decay_end(const struct hd_train_config *t)
{
	if (t->schedule == HD_LR_CONSTANT)
		return 0;
	if (t->decay)
		return t->decay;
	return t->by_tokens ? hd_ramp_samples(&t->batch, t->steps) * t->seq : t->steps;
}

static void note_decay(const char *dir, const struct hd_train_config *was, const struct hd_train_config *is)
{
	const char *unit = is->by_tokens ? "token" : "step";

	/* A run of no steps has none. */
	if (was->schedule == is->schedule && was->by_tokens == is->by_tokens && decay_end(was) &&
	    decay_end(was) != decay_end(is))
		hd_log(HD_LOG_WARN,
		       "%s: the decay of the learning rate was to end at %s %lld, and now ends at %s %lld. "
		       "train.decay = %lld keeps it as it was",
		       dir, unit, (long long)decay_end(was), unit, (long long)decay_end(is), (long long)decay_end(was));
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

/* Without its INI a checkpoint of ours says too little of how it was made. */
static int is_without_conf(const char *dir, struct hd_conf *c)
{
	int ours = is_there(dir, "heddle/state.json");
	int has = is_there(dir, "heddle/conf.ini") && hd_conf_section(c, NULL, "train");

	if (ours && !has)
		hd_log(HD_LOG_WARN,
		       "%s/heddle/conf.ini: is missing or has no [train], so what has changed is not known", dir);
	return ours && !has;
}

void hd_resume_notes(const struct hd_job *j, const char *path)
{
	static const char *const rates[] = {
		"lr",    "min_lr", "schedule", "warmup",    "schedule_unit", "optimizer",         "weight_decay",
		"beta1", "beta2",  "eps",      "precision", "global_batch",  "global_batch_ramp", NULL
	};
	static const char *const data[] = { "train", "valid", "valid_fraction", "format", "field", "order", NULL };
	static const char *const order[] = { "seq", NULL };
	struct hd_err none = { 0 };
	char *dir = hd_checkpoint_find(path, &none);
	struct hd_train_config was;
	struct hd_conf *c = NULL;

	if (j->world.rank || !dir || hd_checkpoint_conf(dir, NULL, 0, &c, &none) < 0 ||
	    hd_train_config_read(c, &was, &none) < 0 ||
	    hd_section_check(c, hd_conf_section(c, NULL, "data"), &hd_data_keys, 1, &none) < 0) {
		hd_conf_destroy(c); /* weights that another program has made, or an older INI */
		free(dir);
		return;
	}
	if (is_without_conf(dir, c)) {
		hd_conf_destroy(c);
		free(dir);
		return;
	}
	note_keys(dir, c, j->conf, "train", rates, "");
	note_key(dir, c, j->conf, "train", "clip", "");
	note_decay(dir, &was, &j->train);
	note_model(dir, c, j->conf);
	if (!note_keys(dir, c, j->conf, "data", data, ": from here on the batches are other ones") &&
	    !note_keys(dir, c, j->conf, "train", order, ": from here on the batches are other ones"))
		note_contents(dir, j);
	hd_conf_destroy(c);
	free(dir);
}
