/* SPDX-License-Identifier: Apache-2.0
 * engine/train/progress.h - what a run shows to a person: a summary at the start, a line per step, and the memory at
 * the end.
 */
#ifndef HD_ENGINE_PROGRESS_H
#define HD_ENGINE_PROGRESS_H
#include "engine/run/job.h"
#include "engine/checkpoint/checkpoint.h"

struct hd_numbers {                         /* the numbers of one step */
	int64_t step, tokens, total_tokens; /* total: of all steps up to this one, including those before a resume */
	double loss, norm, lr, seconds, tokens_per_second, share;
	double memory;        /* bytes that this process has now */
	double elapsed, left; /* seconds since its start, and to the last step */
};
enum { HD_PACE_EVALUATION, HD_PACE_SAVE, HD_PACE_SAMPLE, HD_PACE_KINDS }; /* what a run does between steps */
struct hd_pace {                                                          /* of a run, as measured so far */
	double step; /* seconds per step, smoothed, without the first step, which also fills caches and maps memory */
	int64_t steps;
	double seconds[HD_PACE_KINDS]; /* sums */
	int64_t times[HD_PACE_KINDS];
};
struct hd_show {
	struct hd_job *j;
	int64_t steps, every;
	int prints, terminal, open_line; /* open_line: the terminal shows a line that has not been ended */
	struct hd_pace pace;
	void *scratch;
};

void hd_pace_step(struct hd_pace *p, double seconds);
void hd_pace_add(struct hd_pace *p, int kind, double seconds);
/* Returns the seconds to the end: `steps` steps, and for each kind that
 * has been measured, its mean time `due` times. */
double hd_pace_left(const struct hd_pace *p, int64_t steps, const int64_t due[HD_PACE_KINDS]);
/* Returns how often work is due after steps `from` + 1 to `last`: after each `every` steps, and
 * after the last. every 0: only after the last. */
int64_t hd_pace_due(int64_t every, int64_t from, int64_t last);

void hd_show_open(struct hd_show *s, struct hd_job *j, int64_t steps);
void hd_show_model(const struct hd_job *j); /* prints two lines: model and layout, and the size of a step */
void hd_show_begin(struct hd_show *s, const struct hd_progress *at);
void hd_show_step(struct hd_show *s, struct hd_numbers *n); /* fills in memory, elapsed, left */
/* of_sets: "valid_loss.NAME" of each set, if the data have several. */
void hd_show_eval(struct hd_show *s, int64_t step, double loss, int64_t tokens, json_t *of_sets);
void hd_show_line(struct hd_show *s); /* ends the line that is being rewritten */
void hd_show_end(struct hd_show *s);
#define HD_PROGRESS_FIELDS 11
#define HD_PROGRESS_FIELD 64
#define HD_PROGRESS_TEXT (HD_PROGRESS_FIELDS * (HD_PROGRESS_FIELD + 2))
/* Writes "step 3/40  loss 4.9489 ..." into text[HD_PROGRESS_TEXT], because a step allocates nothing. basis: what the
 * share is a fraction of. columns: fields that do not fit are left out, the least important first; 0: no limit. */
void hd_progress_text(char *text, const struct hd_numbers *n, int64_t steps, const char *basis, int columns);
int64_t hd_peak_bytes(void); /* the process' high-water mark, as the system reports it */
/* Returns the same without pages of other ranks' arenas, which this rank reads in place. Its
 * own arena counts fully, whichever rank wrote it. */
int64_t hd_own_peak_bytes(void);
int64_t hd_private_bytes(void); /* this process' current memory, without memory that other ranks have mapped */

#endif
