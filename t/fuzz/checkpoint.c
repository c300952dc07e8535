/* SPDX-License-Identifier: Apache-2.0
 * Directories with models, of which one file is a stranger's.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/inprocess/inprocess.h"
#include "engine/models/decoder/hf.h"
#include "engine/models/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 16 };

/* -- safetensors ------------------------------------------------------------------------------- */
static void load_all(struct hd_tensorfile *f)
{
	for (int i = 0; i < hd_tensorfile_count(f); i++) {
		int64_t shape[HD_MAX_DIMS] = { 0 }, n = 1;
		struct hd_err err = { 0 };
		uint32_t dtype;
		void *to;
		int ndim;

		hd_tensorfile_find(f, hd_tensorfile_name(f, i), &dtype, &ndim, shape);
		for (int d = 0; d < ndim; d++)
			if (__builtin_mul_overflow(n, shape[d], &n))
				n = MOST_ELEMENTS;
		if (n >= MOST_ELEMENTS || !dtype)
			continue;
		to = malloc((size_t)n * 8);
		hd_fuzz_judge(hd_tensorfile_load(f, hd_tensorfile_name(f, i), dtype, to, NULL, NULL, NULL, &err), &err);
		free(to);
	}
}

void hd_fuzz_safetensors(const uint8_t *data, size_t n)
{
	struct hd_tensorfile *f = NULL;
	struct hd_err err = { 0 };
	int rc = hd_tensorfile_read(hd_fuzz_file("x.safetensors", data, n), &f, &err);

	hd_fuzz_judge(rc, &err);
	if (rc >= 0)
		load_all(f);
	hd_tensorfile_close(f);
}

/* -- a good checkpoint ------------------------------------------------------------------------- */
static struct hd_inprocess *model;

static void fail(const char *what, const struct hd_err *err)
{
	fprintf(stderr, "%s: %s\n", what, err->text);
	exit(2);
}

static void write_weights(const char *dir, int64_t file_bytes)
{
	struct hd_weights w = { 0 };
	struct hd_err err = { 0 };

	hd_checkpoint_file_bytes = file_bytes;
	if (hd_weights_plan(model->program[0], &w, &err) < 0 || hd_weights_create(&w, dir, &err) < 0)
		fail("weights", &err);
	hd_weights_close(&w);
}

static void write_texts(int has_conf)
{
	static const char state[] = "{\"version\": 1, \"step\": 3, \"samples\": 6, \"seed\": 1}",
			  conf[] = "[model]\nfamily = gpt2\nlayers = 1\nheads = 2\nembed = 8\nvocab = 11\n"
				   "[data]\ntrain = none\n[train]\nseq = 4\nglobal_batch = 2\nsteps = 1\n";
	json_t *o = hd_hf_config(&model->plan->model);
	char *text = json_dumps(o, 0);

	hd_fuzz_file("step-00000003/config.json", text, strlen(text));
	hd_fuzz_file("step-00000003/heddle/state.json", state, strlen(state));
	if (has_conf)
		hd_fuzz_file("step-00000003/heddle/conf.ini", conf, strlen(conf));
	hd_fuzz_file("latest", "step-00000003\n", 14);
	free(text);
	json_decref(o);
}

/* Files with no weights of the model: enough for those who count tensors. */
static void write_few(void)
{
	static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
				     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
	char file[8 + sizeof(header) - 1 + 8] = { (char)(sizeof(header) - 1) };

	memcpy(file + 8, header, sizeof(header) - 1);
	hd_fuzz_file("step-00000003/model.safetensors", file, sizeof(file));
}

/* The directory of its only step, made once: the mutated file is written again each time. */
static const char *checkpoint(int with_weights, int has_conf)
{
	static const char ini[] =
		"[model]\nfamily = gpt2\nlayers = 1\nheads = 2\nembed = 8\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 2\nsteps = 1\noptimizer = sgd\n";
	static char *dir;
	struct hd_err err = { 0 };
	char *inner, *outside;
	int planned;

	if (model)
		return dir;
	if (hd_inprocess_open(ini, 1, &model, &planned, &err) < 0)
		fail("model", &err);
	dir = hd_format("%s/step-00000003", hd_fuzz_folder());
	inner = hd_format("%s/heddle", dir);
	outside = hd_format("%s/outside", hd_fuzz_folder());
	if (hd_dir_make(inner, &err) < 0 || hd_dir_make(outside, &err) < 0)
		fail("folders", &err);
	if (with_weights) {
		write_weights(dir, 2000);
		write_weights(outside, 1 << 30);
	} else {
		write_few();
	}
	write_texts(has_conf);
	free(inner);
	free(outside);
	return dir;
}

/* -- one of its files -------------------------------------------------------------------------- */
static int leads_out(const char *text)
{
	json_t *all = json_loads(text, 0, NULL), *map = json_object_get(all, "weight_map"), *file;
	const char *tensor;
	int out = 0;

	json_object_foreach(map, tensor, file)
		out |= json_is_string(file) && strchr(json_string_value(file), '/');
	json_decref(all);
	return out;
}

void hd_fuzz_index(const uint8_t *data, size_t n)
{
	const char *dir = checkpoint(1, 1);
	char *text;
	struct hd_err err = { 0 };
	int rc;

	hd_fuzz_file("step-00000003/model.safetensors.index.json", data, n);
	if (hd_weights_count(dir) < 0 && !hd_fuzz_goes_on(16))
		return;
	text = hd_alloc(n + 1);
	memcpy(text, data, n);
	rc = hd_checkpoint_fits(model->plan, dir, &err);
	hd_fuzz_judge(rc, &err);
	if (rc >= 0 && leads_out(text)) {
		fprintf(stderr, "read outside of %s\n", dir);
		abort();
	}
	free(text);
}

void hd_fuzz_state(const uint8_t *data, size_t n)
{
	const char *dir = checkpoint(0, 1);
	struct hd_progress at = { 0 };
	struct hd_err err = { 0 };
	char *picks = NULL;
	int64_t seed;
	int rc;

	hd_fuzz_file("step-00000003/heddle/state.json", data, n);
	rc = hd_state_read(dir, &at, &seed, &picks, &err);
	hd_fuzz_judge(rc, &err);
	if (rc >= 0 && (at.step < 0 || at.samples < 0 || at.tokens < -1)) {
		fprintf(stderr, "step %lld after %lld samples\n", (long long)at.step, (long long)at.samples);
		abort();
	}
	free(picks);
}

/* Code is of those who run it: a checkpoint names at most plugins that are installed. */
static void is_harmless(struct hd_conf *c, struct hd_section *s)
{
	const char *key = hd_section_is(s, "plugin") ? "file" : "plugin", *value = hd_section_str(s, key);
	size_t n = strlen(value);

	if (!hd_section_is(s, "plugin") && !hd_section_is(s, "strategy"))
		return;
	if (strchr(value, '/') || (n > 3 && !strcmp(value + n - 3, ".so"))) {
		fprintf(stderr, "%s: it loads %s\n", hd_conf_path(c), value);
		abort();
	}
}

/* As eval and generate begin, and model.load. */
static void rebuild(const char *dir)
{
	struct hd_conf *c = NULL;
	struct hd_err err = { 0 };

	hd_fuzz_judge(hd_checkpoint_conf(dir, NULL, 0, &c, &err), &err);
	if (c)
		hd_fuzz_model(c);
	for (struct hd_section *s = NULL; c && (s = hd_conf_next(c, NULL, s));)
		is_harmless(c, s);
	hd_conf_destroy(c);
}

void hd_fuzz_config(const uint8_t *data, size_t n)
{
	static const char load[] = "[model]\nload = ";
	const char *dir = checkpoint(0, 0);
	char *text;
	struct hd_conf *c = NULL;
	struct hd_err err = { 0 };

	hd_fuzz_file("step-00000003/config.json", data, n);
	rebuild(dir);
	if (!hd_fuzz_goes_on(16))
		return;
	text = hd_format("%s%s\n", load, dir);
	if (hd_conf_parse("x.ini", text, NULL, 0, &c, &err) >= 0)
		hd_fuzz_judge(hd_model_load_conf(c, &err), &err);
	err = (struct hd_err){ 0 };
	hd_fuzz_judge(hd_config_check(dir, &model->plan->model, &err), &err);
	hd_conf_destroy(c);
	free(text);
}

void hd_fuzz_kept(const uint8_t *data, size_t n)
{
	const char *dir = checkpoint(0, 1);

	hd_fuzz_file("step-00000003/heddle/conf.ini", data, n);
	rebuild(dir);
}

void hd_fuzz_latest(const uint8_t *data, size_t n)
{
	struct hd_err err = { 0 };
	char *found, *inside;

	checkpoint(0, 1);
	hd_fuzz_file("latest", data, n);
	found = hd_checkpoint_find(hd_fuzz_folder(), &err);
	inside = hd_format("%s/step-", hd_fuzz_folder());
	if (found ? strncmp(found, inside, strlen(inside)) || strchr(found + strlen(inside), '/') : !err.code) {
		fprintf(stderr, "latest leads to %s\n", found ? found : "nothing");
		abort();
	}
	free(found);
	free(inside);
}
