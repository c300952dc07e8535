/* SPDX-License-Identifier: Apache-2.0
 * The saves of a run. With checkpoint.async the ranks stop for a copy only. A thread of each rank then writes the copy,
 * in the same phases as a synchronous save, with messages of its own. From step to step the ranks ask each other
 * whether all threads have ended.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* gettid */
#endif
#include "engine/checkpoint/checkpoint_impl.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NICE 5 /* the steps come first if both want a core */

struct hd_saver {
	struct hd_job *j;
	uint64_t data_hash;
	struct hd_image *images; /* by file */
	size_t nimages;
	struct hd_saving saving;
	struct hd_saved is;        /* of the current save, or of the last */
	double begun, waited;      /* waited: for the save before */
	double end;                /* when it was written */
	int in_progress, threaded; /* in_progress: a save is being written; threaded: by a thread */
	int reported;              /* hd_saver_done has returned it */
	pthread_t thread;
	atomic_int ended;
	struct hd_err err; /* of the write */
};

/* Lays out the images by a save that only counts. Its step is 1, so it includes gradients, if these are ever saved. */
static int open_images(struct hd_saver *s, struct hd_err *err)
{
	int rc;

	hd_saving_begin(&s->saving, s->j, &(struct hd_progress){ .step = 1 });
	rc = hd_saving_plan(&s->saving, err);
	if (rc >= 0) {
		s->nimages = hd_saving_files(&s->saving);
		s->saving.images = s->images = hd_alloc(s->nimages * sizeof(*s->images));
		rc = hd_saving_gather(&s->saving, err);
	}
	for (size_t i = 0; i < s->nimages && rc >= 0; i++)
		rc = hd_image_open(&s->images[i], err);
	hd_saving_end(&s->saving);
	return rc;
}

int hd_saver_open(struct hd_job *j, struct hd_saver **out, struct hd_err *err)
{
	struct hd_saver *s = hd_alloc(sizeof(*s));

	*out = s;
	s->j = j;
	s->reported = 1;
	if (j->data)
		s->data_hash = hd_data_fingerprint(j->data);
	if (!j->checkpoint.async)
		return HD_OK;
	hd_comm_side_open();
	open_images(s, err);
	return hd_comm_agree(err);
}

void hd_saver_close(struct hd_saver *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->nimages; i++)
		hd_image_close(&s->images[i]);
	free(s->images);
	free(s);
}

static void finish(struct hd_saver *s)
{
	s->is.seconds = s->end - s->begun;
	hd_saving_end(&s->saving);
	s->reported = 0;
}

/* -- writing during the steps ---------------------------------------------------------------- */
static void *write_in_thread(void *ctx)
{
	struct hd_saver *s = ctx;

	if (setpriority(PRIO_PROCESS, (id_t)gettid(), getpriority(PRIO_PROCESS, (id_t)gettid()) + NICE))
		errno = 0; /* then it has the same priority as the others */
	hd_saving_write(&s->saving, &s->err);
	s->end = hd_seconds();
	atomic_store(&s->ended, 1);
	return NULL;
}

/* Starts the thread, with all signals blocked: they are for the thread that trains. Returns 0 if there is no thread,
 * and the save has been written. */
static int start(struct hd_saver *s)
{
	sigset_t all, was;
	int rc;

	atomic_store(&s->ended, 0);
	s->err = (struct hd_err){ 0 };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	rc = pthread_create(&s->thread, NULL, write_in_thread, s);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (rc)
		write_in_thread(s);
	return !rc;
}

int hd_saver_poll(struct hd_saver *s, struct hd_err *err)
{
	if (!s || !s->in_progress || hd_comm_max(!atomic_load(&s->ended)) > 0)
		return HD_OK;
	if (s->threaded)
		pthread_join(s->thread, NULL);
	s->in_progress = 0;
	finish(s);
	if (s->err.code && !err->code)
		*err = s->err;
	return s->err.code;
}

int hd_saver_wait(struct hd_saver *s, struct hd_err *err)
{
	const struct timespec nap = { 0, 2000000 };
	double from = hd_seconds();

	while (s && s->in_progress) {
		HD_TRY(hd_saver_poll(s, err));
		if (s->in_progress)
			nanosleep(&nap, NULL);
	}
	if (s)
		s->waited = hd_seconds() - from;
	return HD_OK;
}

static int save_async(struct hd_saver *s, struct hd_err *err)
{
	double from = hd_seconds();
	int rc;

	s->saving.images = s->images;
	s->saving.agree = hd_comm_side_agree;
	s->saving.sum = hd_comm_side_sum;
	hd_saving_gather(&s->saving, err);
	hd_program_forget_copies(s->saving.g);
	s->is.copy = hd_seconds() - from;
	rc = hd_comm_agree(err);
	s->in_progress = rc >= 0;
	s->threaded = s->in_progress && start(s);
	return rc;
}

/* -- a save ---------------------------------------------------------------------------------- */
int hd_saver_saves(const struct hd_saver *s, int64_t *step)
{
	*step = s->saving.at.step;
	return s->in_progress;
}

int hd_saver_save(struct hd_saver *s, const struct hd_progress *at, struct hd_err *err)
{
	int rc;

	hd_saving_begin(&s->saving, s->j, at);
	s->saving.data_hash = s->data_hash;
	s->begun = hd_seconds();
	s->is = (struct hd_saved){ .step = at->step, .waited = s->waited };
	s->waited = 0;
	hd_saving_plan(&s->saving, err);
	rc = hd_comm_agree(err);
	if (rc >= 0)
		s->is.bytes = hd_saving_bytes(&s->saving);
	if (rc >= 0 && s->j->checkpoint.async)
		return save_async(s, err);
	if (rc >= 0)
		rc = hd_saving_write(&s->saving, err);
	hd_program_forget_copies(s->saving.g);
	s->end = hd_seconds();
	finish(s);
	s->reported = rc < 0;
	return rc;
}

int hd_saver_done(struct hd_saver *s, struct hd_saved *out)
{
	if (!s || s->in_progress || s->reported || s->err.code)
		return 0;
	*out = s->is;
	s->reported = 1;
	return 1;
}
