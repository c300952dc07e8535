/* SPDX-License-Identifier: Apache-2.0
 * Saves the checkpoints of a run. A save begins after a step and is written during the following steps. Messages
 * report its progress.
 */
#include <config.h>
#include "engine/train/train_impl.h"
#include <stdlib.h>

int hd_train_saves(const struct train_loop *l)
{
	return l->j->checkpoint.dir[0] != 0;
}

/* Notes a save that has ended, and writes a line of metrics for it. It does so only with checkpoint.async, since
 * otherwise each step's line is directly followed by the next step's. */
static void report_saved(struct train_loop *l)
{
	struct hd_saved s;
	json_t *o;

	if (!hd_saver_done(l->saver, &s))
		return;
	l->newest = s.step;
	if (!l->j->checkpoint.async || (!l->metrics && !l->events))
		return;
	o = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)s.step, "save_seconds",
		      hd_json_number(s.seconds), "save_bytes", json_integer((json_int_t)s.bytes),
		      "save_bytes_per_second", hd_json_number(s.bytes / (s.seconds - s.copy)), "save_copy_seconds",
		      hd_json_number(s.copy), "save_waited_seconds", hd_json_number(s.waited));
	hd_train_emit(l, o);
}

/* Handles the result of a save. A failed save costs its checkpoint but not the run, and the next save tries again.
 * Only the failure of the last one makes the run fail. */
static int handle_save_result(struct train_loop *l, int64_t step, const struct hd_err *why)
{
	char *newest =
		l->newest < 0 ? NULL : hd_format("the newest checkpoint is that of step %lld", (long long)l->newest);

	if (why->code < 0 && l->saved == step)
		l->saved = -1;
	if (why->code < 0 && (why->code != HD_EIO || (l->last_save && step == l->at.step))) {
		*l->err = *why;
	} else if (why->code < 0) {
		hd_show_line(&l->show);
		hd_log(HD_LOG_WARN, "step %lld is not saved, and training goes on: %s; %s", (long long)step, why->text,
		       newest ? newest : "nothing is saved yet");
	}
	free(newest);
	return l->err->code;
}

static int poll_or_wait(struct train_loop *l, int (*what)(struct hd_saver *s, struct hd_err *err))
{
	struct hd_err why = { 0 };
	int64_t step = -1;

	if (l->saver && hd_saver_saves(l->saver, &step)) {
		what(l->saver, &why);
		HD_TRY(handle_save_result(l, step, &why));
	}
	report_saved(l);
	return HD_OK;
}

/* Waits until the current save is on the disk. */
int hd_train_wait_for_saves(struct train_loop *l)
{
	return poll_or_wait(l, hd_saver_wait);
}

/* Checks the current save, between steps. */
int hd_train_look_after_saves(struct train_loop *l)
{
	return poll_or_wait(l, hd_saver_poll);
}

int hd_train_save_once(struct train_loop *l)
{
	struct hd_err why = { 0 };
	int64_t other;

	if (l->saved == l->at.step)
		return HD_OK;
	if (hd_saver_saves(l->saver, &other)) {
		hd_show_line(&l->show);
		hd_log(HD_LOG_INFO,
		       "step %lld: its checkpoint waits for that of step %lld, which is still being written",
		       (long long)l->at.step, (long long)other);
		HD_TRY(hd_train_wait_for_saves(l));
	}
	hd_saver_save(l->saver, &l->at, &why);
	l->saved = l->at.step;
	HD_TRY(handle_save_result(l, l->at.step, &why));
	report_saved(l);
	return HD_OK;
}

/* Returns how many saves are to come: after every checkpoint.every steps, and after the last. If no step is left, it
 * is the checkpoint that the run resumed from, unless checkpoint.dir has it. */
int64_t hd_train_saves_to_come(const struct train_loop *l)
{
	int64_t every = l->j->checkpoint.every, left = l->steps - l->at.step;

	if (left <= 0)
		return l->saved != l->at.step;
	return every ? l->steps / every - l->at.step / every + (l->steps % every != 0) : 1;
}
