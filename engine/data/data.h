/* SPDX-License-Identifier: Apache-2.0
 * engine/data/data.h - token streams and the order of samples.
 *
 * A sample is seq + 1 consecutive ids of one split. Sample s of step k is a pure function of (seed, k, s), so it does
 * not depend on the layout. Resuming needs the step alone.
 */
#ifndef HD_ENGINE_DATA_H
#define HD_ENGINE_DATA_H
#include "engine/config/conf.h"

extern const struct hd_key_table hd_data_keys; /* [data] */

struct hd_data;
struct hd_tokenizer;
/* Opens (memory-maps) the files that [data] names. The training split and each validation set must have at least seq +
 * 1 ids. Ids must be below vocab; 0 means that it is not known yet. They are checked as they are read: the error names
 * the file, the position, the id and vocab. */
int hd_data_open(struct hd_conf *c, int64_t seq, int64_t vocab, uint64_t seed, struct hd_data **out,
		 struct hd_err *err);
void hd_data_close(struct hd_data *d);
int hd_data_is_here(struct hd_conf *c);         /* whether any file or pattern of [data] train exists on this machine */
int hd_data_has_ids(struct hd_conf *c);         /* whether it does, and has ids, not text, judging by its name */
int64_t hd_data_seq(const struct hd_data *d);   /* tokens of a sample, less one */
int64_t hd_data_vocab(const struct hd_data *d); /* 256 for bytes; else that of the tokenizer or the data; 0: unknown */
/* Returns the tokenizer of [data]. It is NULL if that is byte or absent, or if the ids are of a kind of tokenizer that
 * Heddle does not support. */
const struct hd_tokenizer *hd_data_tokenizer(const struct hd_data *d);
int hd_data_is_text(const struct hd_data *d); /* 0: the data are ids of a different program */
/* Warns of each file with bytes that count as U+FFFD, or with ids that stay unread. */
void hd_data_warn(const struct hd_data *d);
int64_t hd_data_tokens(const struct hd_data *d, int valid);
/* The validation sets are evaluated separately. A set's name is the one in metrics. It is NULL for the tail of a
 * single source and for the file of hd_data_open_file. */
int64_t hd_data_valid_sets(const struct hd_data *d);
const char *hd_data_valid_name(const struct hd_data *d, int64_t set);
/* Returns the number of complete samples in a pass over a set, which share no targets; 0 if there is no such set. */
int64_t hd_data_valid_samples(const struct hd_data *d, int64_t set);
int64_t hd_data_valid_rest(const struct hd_data *d, int64_t set); /* targets after them, fewer than seq */
/* Reads the seq + 1 ids of training sample first + index. first is the number of samples that all earlier steps used;
 * index, in [0, global_batch), counts within the step. With order = random, samples are drawn without replacement
 * within an epoch. With weights, an epoch is that of a file. */
int hd_data_sample(const struct hd_data *d, int64_t first, int64_t index, int32_t *ids, struct hd_err *err);
/* Returns a hash of the tokens of some training samples, spread over the data. It changes with the data, seq, the seed
 * and the order. */
uint64_t hd_data_fingerprint(const struct hd_data *d);
/* Reads a validation sample. The one after all complete samples is the rest, padded with zeros. */
int hd_data_valid_sample(const struct hd_data *d, int64_t set, int64_t index, int32_t *ids, struct hd_err *err);
/* Opens one file as the only validation set, with the tokenizer of c (heddle eval). It needs 2 ids or more, and may be
 * shorter than a sample. */
int hd_data_open_file(struct hd_conf *c, const char *path, int64_t seq, int64_t vocab, struct hd_data **out,
		      struct hd_err *err);
/* Opens the tokenizer of [data] for text of a model with `vocab` tokens; *out is NULL if bytes are tokens. Refuses a
 * combination that makes no sense; `what` names the text in the message. */
int hd_data_text_tokenizer(struct hd_conf *c, const char *what, int64_t vocab, struct hd_tokenizer **out,
			   struct hd_err *err);

#endif
