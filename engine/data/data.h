/* SPDX-License-Identifier: Apache-2.0
 * engine/data/data.h - token streams and the order of samples.
 *
 * A sample is seq + 1 consecutive ids of one split. Sample s of step k is a pure function of (seed, k, s), so it does not
 * depend on the layout. Resuming needs the step alone.
 */
#ifndef HD_ENGINE_DATA_H
#define HD_ENGINE_DATA_H
#include "engine/config/conf.h"

extern const struct hd_key_table hd_data_keys; /* [data] */

struct hd_data;
struct hd_tokenizer;
/* Opens (memory-maps) what [data] names.  seq + 1 ids must fit; ids must be below vocab (checked as they are read: the
 * error names the file, the position, the id and vocab).  vocab 0: not known yet. */
int hd_data_open(struct hd_conf *c, int64_t seq, int64_t vocab, uint64_t seed, struct hd_data **out,
		 struct hd_err *err);
void hd_data_close(struct hd_data *d);
int hd_data_is_here(struct hd_conf *c);         /* a file, directory or pattern of [data] train is on this machine */
int hd_data_has_ids(struct hd_conf *c);         /* and it is ids, not text, as far as names tell */
int64_t hd_data_seq(const struct hd_data *d);   /* tokens of a sample, less one */
int64_t hd_data_vocab(const struct hd_data *d); /* 256 for bytes; else what tokenizer or data say, 0: unknown */
/* What [data] tokenizer names, or NULL: it is byte, or not given, or ids have another kind of tokenizer. */
const struct hd_tokenizer *hd_data_tokenizer(const struct hd_data *d);
int hd_data_is_text(const struct hd_data *d); /* not ids that another program has made */
/* Warns of each file of text of which bytes count as U+FFFD. */
void hd_data_warn(const struct hd_data *d);
int64_t hd_data_tokens(const struct hd_data *d, int valid);
/* The sets of validation, each evaluated by itself; their names in metrics, NULL where there is one alone. */
int64_t hd_data_valid_sets(const struct hd_data *d);
const char *hd_data_valid_name(const struct hd_data *d, int64_t set);
/* Number of whole samples of a pass over such a set: non-overlapping windows.  0: there is no such set. */
int64_t hd_data_valid_samples(const struct hd_data *d, int64_t set);
int64_t hd_data_valid_rest(const struct hd_data *d, int64_t set); /* targets behind them, fewer than seq */
/* seq + 1 ids of sample `index` (global, in [0, global_batch)) of step (1-based) of the training split, drawn without
 * replacement within an epoch (of its file, where there are weights) when order = random.  first = how many samples all earlier
 * steps used. */
int hd_data_sample(const struct hd_data *d, int64_t first, int64_t index, int32_t *ids, struct hd_err *err);
/* Of the tokens of some training samples, spread over the data: another where the data, seq, the seed or the order are others. */
uint64_t hd_data_fingerprint(const struct hd_data *d);
/* The one behind all whole ones is the rest, with zeros behind it. */
int hd_data_valid_sample(const struct hd_data *d, int64_t set, int64_t index, int32_t *ids, struct hd_err *err);
/* One-time: opens FILE as the validation split alone, with the tokenizer of c (heddle eval).  2 ids or more: it may be all rest. */
int hd_data_open_file(struct hd_conf *c, const char *path, int64_t seq, int64_t vocab, struct hd_data **out,
		      struct hd_err *err);
/* The tokenizer of [data] for text of a model with `vocab` tokens; *out NULL: bytes are tokens.  Refused where that would be
 * nonsense: what names the text in the message. */
int hd_data_text_tokenizer(struct hd_conf *c, const char *what, int64_t vocab, struct hd_tokenizer **out,
			   struct hd_err *err);

#endif
