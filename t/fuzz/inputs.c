/* SPDX-License-Identifier: Apache-2.0
 * The kinds of files, the folder in which they are put, and what all of them are judged by.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include "engine/file/atomic_file.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_WORDS \
	"\"model_type\": gpt2 llama mistral qwen2 gemma3_text mixtral \"n_layer\": \"num_hidden_layers\": \"hidden_size\": \"vocab_size\": " \
	"\"n_head\": \"num_attention_heads\": \"rope_scaling\": \"rope_type\": \"heddle\": \"family\": 1000000000 9223372036854775807 -1 " \
	"1e308 null [] {} \"layer_types\": \"sliding_window\": \"auto_map\":"
#define TOKENIZER_WORDS \
	"\"type\": \"BPE\" \"vocab\": \"merges\": \"Sequence\" \"pre_tokenizers\": \"normalizers\": \"decoders\": \"ByteLevel\" \"Split\" " \
	"\"pattern\": \"Regex\": \"String\": \"behavior\": \"Isolated\" \"Metaspace\" \"replacement\": \"Digits\" \"NFC\" \"Replace\" " \
	"\"Prepend\" \"Strip\" \"added_tokens\": \"content\": \"id\": \"special\": \"lstrip\": \"unk_token\": \"byte_fallback\": " \
	"\"ignore_merges\": \"continuing_subword_prefix\": \"\\u0000\" \\\\p{L}+ (?:a|b)* 16777216 [] {} null true"

const struct hd_fuzz_input hd_fuzz_inputs[] = {
	{ "conf", hd_fuzz_conf,
	  "[model] [train] [data] [strategy [log] [checkpoint] = ; # 1e999 -1 9223372036854775807 16G global_batch_ramp lr seq family "
	  "plugin size auto yes model.layers= train.steps=",
	  2000 },
	{ "machine", hd_fuzz_machine,
	  "[machine] ranks_per_node = memory = 16G flops_fp32 = 1e999 nan inf -1 efficiency node_bandwidth", 1000 },
	{ "schedule", hd_fuzz_schedule, "rank,kind,chunk,micro 0,F,0,0 1,B,0,1 W -1 9223372036854775807 # , \n", 600 },
	{ "safetensors", hd_fuzz_safetensors,
	  "\"dtype\": \"F32\" \"BF16\" \"I64\" \"C64\" \"shape\": \"data_offsets\": \"__metadata__\" [ ] { } , : [0,9223372036854775807] 0 -1 "
	  "4611686018427387904",
	  1500 },
	{ "index", hd_fuzz_index,
	  "\"weight_map\": \"metadata\": model-00001-of-00002.safetensors ../outside/model.safetensors /dev/zero .. . null {} []",
	  3000 },
	{ "config", hd_fuzz_config, CONFIG_WORDS, 1500 },
	{ "state", hd_fuzz_state,
	  "\"version\": \"step\": \"samples\": \"seed\": \"picks\": -1 9223372036854775807 null [] {}", 600 },
	{ "kept", hd_fuzz_kept,
	  "[model] [strategy [plugin plugin = file = ../x.so ./x.so tokenizer = load = family metrics =", 1500 },
	{ "latest", hd_fuzz_latest, "step- 00000001 .. / . \n", 40 },
	{ "megatron", hd_fuzz_megatron, "MMIDIDX", 400 },
	{ "llmc", hd_fuzz_llmc, "", 1200 },
	{ "jsonl", hd_fuzz_jsonl, "{\"text\": \"} \n \\u0000 \\ud800 null [] {}", 800 },
	{ "packed", hd_fuzz_packed, "", 400 },
	{ "choices", hd_fuzz_choices,
	  "\"prompt\": \"choices\": \"answer\": [ ] { } null -1 9223372036854775807 \"\" \\u0000 \n", 800 },
	{ "tokenizer", hd_fuzz_tokenizer, TOKENIZER_WORDS, 6000 },
	{ "metrics", hd_fuzz_metrics,
	  "\"step\": \"loss\": \"run\": \"time\": \"load\": [ ] { } 1e308 -1e308 null -1 9223372036854775807 </script> \n",
	  1500 },
	{ NULL, NULL, NULL, 0 },
};

const struct hd_fuzz_input *hd_fuzz_find(const char *name)
{
	const struct hd_fuzz_input *i = hd_fuzz_inputs;

	while (i->name && strcmp(i->name, name))
		i++;
	return i->name ? i : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct hd_fuzz_input *input;

	if (!input) {
		const char *name = getenv("HD_FUZZ_INPUT");

		input = hd_fuzz_find(name ? name : "");
		if (!input) {
			fprintf(stderr, "HD_FUZZ_INPUT is not the name of an input of t/fuzz/inputs.c\n");
			exit(2);
		}
		hd_log_init(1, -1);
		atexit(hd_fuzz_end);
	}
	input->one(data, n);
	return 0;
}

/* -- files ------------------------------------------------------------------------------------- */
static char *folder;
static pid_t owner;

const char *hd_fuzz_folder(void)
{
	const char *tmp = !access("/dev/shm", W_OK) ? "/dev/shm" : "/tmp";

	if (!folder) {
		folder = hd_format("%s/heddle-fuzz.XXXXXX", tmp);
		owner = getpid();
		if (!mkdtemp(folder)) {
			perror(folder);
			exit(2);
		}
	}
	return folder;
}

/* Files stay open: to write one again is then two calls of the kernel, and its pages are there. */
static struct file {
	char path[200];
	int fd;
	size_t n;
} files[8];
static int nfiles;

void hd_fuzz_end(void)
{
	struct hd_err ignored = { 0 };

	while (nfiles)
		close(files[--nfiles].fd);
	if (folder && owner == getpid())
		hd_dir_remove(folder, &ignored);
	free(folder);
	folder = NULL;
}

static struct file *open_file(const char *name)
{
	size_t at = strlen(hd_fuzz_folder()) + 1;
	struct file *f = files;

	while (f < files + nfiles && strcmp(f->path + at, name))
		f++;
	if (f < files + nfiles)
		return f;
	if (nfiles == sizeof(files) / sizeof(files[0])) {
		fprintf(stderr, "t/fuzz/inputs.c: more than %d files\n", nfiles);
		exit(2);
	}
	snprintf(f->path, sizeof(f->path), "%s/%s", folder, name);
	f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	f->n = 0;
	nfiles++;
	return f;
}

const char *hd_fuzz_file(const char *name, const void *data, size_t n)
{
	struct file *f = open_file(name);

	if (f->fd < 0 || (n && pwrite(f->fd, data, n, 0) != (ssize_t)n) ||
	    (n < f->n && ftruncate(f->fd, (off_t)n) < 0)) {
		perror(f->path);
		exit(2);
	}
	f->n = n;
	return f->path;
}

void hd_fuzz_judge(int rc, const struct hd_err *err)
{
	if (rc >= 0 && !err->code)
		return;
	if (rc >= 0 || !err->code || !*err->text) {
		fprintf(stderr, "refused with status %d, code %d and text '%s'\n", rc, err->code, err->text);
		abort();
	}
}
