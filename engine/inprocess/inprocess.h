/* SPDX-License-Identifier: Apache-2.0
 * engine/inprocess/inprocess.h - a layout with all its ranks in this process, in double on the reference device: exact, the
 * same every time, and without MPI.  Or in another precision, on a device that computes in the host's memory.
 *
 *	hd_inprocess_open(ini, 0, &r, &planned, &err)
 *	hd_inprocess_step(r, &err)			up to the gradients and their norm
 *	hd_inprocess_update(r, &err)			the update of that step
 *	hd_inprocess_whole(r, t, NULL)			a tensor put together again
 *	hd_inprocess_close(r)
 *
 * Parameters are made from their names and global indices, none of them 0 or 1, so that no term of a gradient is hidden.
 * So are token ids, from the number of the sample.
 */
#ifndef HD_ENGINE_INPROCESS_H
#define HD_ENGINE_INPROCESS_H
#include "engine/inprocess/net.h"
#include "engine/run/run.h"

/* What a rank has computed of a tensor, while somebody looks on; NULL: nothing. */
struct hd_seen {
	double *value; /* as many as it has on that rank */
	int64_t n;
};

struct hd_inprocess {
	struct hd_conf *conf;
	struct hd_plan *plan;
	int n; /* ranks */
	struct hd_program **program;
	char **memory; /* persistent, then transient */
	struct hd_net_in *net;
	struct hd_run run;
	int64_t vocab;
	int64_t members, member; /* its samples are those of this one of so many replicas; 0: all */
	int looks;               /* keep what is computed: by rank, tensor and micro-batch in `seen` */
	struct hd_seen *seen;    /* [rank][tensor][micro-batch, then HD_STEP] */
	struct hd_err failed;    /* of a rank, in a step */
	const struct hd_device_ops *device;
	void (*normed)(void *ctx, struct hd_inprocess *r,
		       int rank); /* the norm is there, and no update has begun; or NULL */
	void *ctx;
};

/* ranks 0: as many as the layout says.  *planned: there was a plan, so what failed should have been refused before. */
int hd_inprocess_open(const char *ini, int64_t ranks, struct hd_inprocess **out, int *planned, struct hd_err *err);
/* In fp32, with as many ranks as the layout says, on a device that is open.  compute_dtype is that of struct hd_plan_options.
 * hd_inprocess_scalar and hd_inprocess_whole convert to double, hd_inprocess_address does not. */
int hd_inprocess_open_on(const char *ini, const struct hd_device_ops *device, uint32_t compute_dtype,
			 struct hd_inprocess **out, int *planned, struct hd_err *err);
void hd_inprocess_close(struct hd_inprocess *r); /* NULL is allowed */
int hd_inprocess_step(struct hd_inprocess *r, struct hd_err *err);
int hd_inprocess_update(struct hd_inprocess *r, struct hd_err *err); /* with r->run.lr */
/* Both, where an optimizer's nodes may begin while movements of the step are under way. */
int hd_inprocess_train(struct hd_inprocess *r, struct hd_err *err);
/* A step whose results are kept, all of them: seen. */
int hd_inprocess_look(struct hd_inprocess *r, struct hd_err *err);
const struct hd_seen *hd_inprocess_seen(const struct hd_inprocess *r, const struct tensor *t, int rank, int64_t micro);

double hd_inprocess_scalar(const struct hd_inprocess *r, const struct tensor *t, int rank);
/* NULL: not there */
double *hd_inprocess_address(const struct hd_inprocess *r, const struct tensor *t, int rank);
struct tensor *hd_inprocess_param(const struct hd_inprocess *r, const char *name); /* NULL: there is none */
/* What the update reads of it; NULL: it has none. */
struct tensor *hd_inprocess_gradient(const struct hd_inprocess *r, const struct tensor *param);

/* The whole tensor, malloc'ed, of hd_global_count elements, from `seen` of that micro-batch, or from memory after a step
 * (micro NULL).  *apart: how far copies of the same part on several ranks differ.  NULL: not all of it is there. */
double *hd_inprocess_whole(const struct hd_inprocess *r, const struct tensor *t, const int64_t *micro, double *apart);

#endif
