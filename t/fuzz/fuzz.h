/* SPDX-License-Identifier: Apache-2.0
 * t/fuzz/fuzz.h - files of strangers, as functions of their bytes: whatever these are, a reader refuses them in one sentence or reads
 * them, within bounds of memory and time.
 *
 * One function per kind of file.  Three programs call them: t1114 replays t/data/fuzz/NAME and, with arguments, mutates those files
 * (mutate.c, which needs no more than gcc); libFuzzer, where clang has it, calls LLVMFuzzerTestOneInput, with
 * HD_FUZZ_INPUT=NAME.  A function ends the process (abort) where what it was promised does not hold.
 *
 * An execution is one input, written to a file in memory, opened by its path and read to the end by the code that a run reads it
 * with, under the sanitizers.  What surrounds the file (a plan, a checkpoint, folders) is made once in a process.  What follows the
 * reading and takes long is done in the executions that hd_fuzz_goes_on chooses, and always where a kept file is replayed:
 *
 *	schedule   every execution reads the file and checks the order; few plan the layout anew and run a step
 *	index      every execution reads the index and the headers of its files; those it accepts are compared with a model
 *	config     every execution rebuilds the conf; few read the model by model.load too, and compare it with another
 *
 * Buffers of readers are small there (FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION), so that short files too fill them several times.
 */
#ifndef HD_T_FUZZ_FUZZ_H
#define HD_T_FUZZ_FUZZ_H
#include "engine/base/err.h"
#include <stddef.h>
#include <stdint.h>

struct hd_fuzz_input {
	const char *name;
	void (*one)(const uint8_t *data, size_t n);
	const char *words; /* that mutations put in, separated by blanks */
	size_t longest;    /* bytes of a mutated file: that is where speed is */
};
extern const struct hd_fuzz_input hd_fuzz_inputs[]; /* ends with name NULL */
const struct hd_fuzz_input *hd_fuzz_find(const char *name);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A folder of this process, made once, removed by hd_fuzz_end; a file in it with these bytes, whose path lives until the next call
 * with that name.  name may have folders in it. */
const char *hd_fuzz_folder(void);
const char *hd_fuzz_file(const char *name, const void *data, size_t n);
void hd_fuzz_end(void);
/* Refused: in one line that is not empty; else read, and without an error left behind. */
void hd_fuzz_judge(int rc, const struct hd_err *err);
struct hd_conf;
void hd_fuzz_model(struct hd_conf *c); /* reads its [model] and [train] */

/* -- tally.c: with HD_FUZZ_KEPT=DIR, else nothing is kept -- */
int64_t hd_fuzz_wanted(void);            /* HD_FUZZ_WANTED: executions of each kind, over all runs; 0: no number */
int64_t hd_fuzz_tally(const char *name); /* executions of that kind in all runs so far */
char *hd_fuzz_corpus(const char *name);  /* the folder of its inputs, made; NULL: there is none; the caller's to free */
void hd_fuzz_keep(const char *dir, const uint8_t *data, size_t n);
void hd_fuzz_count(const char *name, int64_t runs, double seconds, uint64_t seed, int crashed);

/* -- mutate.c -- */
/* Mutates the files of `corpus`, those kept of earlier runs, and those that it finds to run new code, for `seconds`; in a child, so
 * that a crash or a hang is seen.  The input that ended it is left as NAME.crash in the current folder.  What is drawn depends on the
 * seed and on the executions so far.  -> how many inputs were run, negative: one crashed. */
int64_t hd_fuzz_run(const struct hd_fuzz_input *input, const char *corpus, int seconds, uint64_t seed);
/* Whether what takes long is worth its time for this input: it has run code that none before it ran; or it is one of so many at
 * random; or nothing is searched. */
int hd_fuzz_goes_on(int one_of);
/* Each file of the folder, once, in order; -> how many there were, negative: one crashed. */
int64_t hd_fuzz_replay(const struct hd_fuzz_input *input, const char *corpus);

void hd_fuzz_conf(const uint8_t *data, size_t n);        /* an INI; behind a 0 arguments of --set, each ended by a 0 */
void hd_fuzz_machine(const uint8_t *data, size_t n);     /* conf/machines/ */
void hd_fuzz_schedule(const uint8_t *data, size_t n);    /* [strategy pp] schedule = FILE.csv */
void hd_fuzz_safetensors(const uint8_t *data, size_t n); /* a whole file */
void hd_fuzz_index(const uint8_t *data, size_t n);       /* model.safetensors.index.json, beside two good files */
void hd_fuzz_config(const uint8_t *data, size_t n);      /* config.json of a checkpoint */
void hd_fuzz_state(const uint8_t *data, size_t n);       /* heddle/state.json */
void hd_fuzz_kept(const uint8_t *data, size_t n);        /* heddle/conf.ini */
void hd_fuzz_latest(const uint8_t *data, size_t n);      /* DIR/latest */
void hd_fuzz_megatron(const uint8_t *data, size_t n);    /* .idx, beside a .bin of 64 bytes */
void hd_fuzz_llmc(const uint8_t *data, size_t n);        /* .bin */
void hd_fuzz_jsonl(const uint8_t *data, size_t n);       /* texts to be tokenized */
void hd_fuzz_packed(const uint8_t *data, size_t n);      /* the same, .gz or .zst by its first byte */
void hd_fuzz_choices(const uint8_t *data, size_t n);     /* eval --choices */
void hd_fuzz_tokenizer(const uint8_t *data, size_t n);   /* tokenizer.json; behind a 0 a text to encode */
void hd_fuzz_metrics(const uint8_t *data, size_t n);     /* metrics.jsonl, to be drawn */

#endif
