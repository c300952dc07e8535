/* SPDX-License-Identifier: Apache-2.0
 * engine/inprocess/inprocess.h - runs a layout with all its ranks in this process, without MPI. By default it computes
 * in double on the reference device, with exactly reproducible results. It can also use another precision, on a device
 * that computes in the host's memory.
 *
 *	hd_inprocess_open(ini, 0, &r, &planned, &err)
 *	hd_inprocess_step(r, &err)			up to the gradients and their norm
 *	hd_inprocess_update(r, &err)			the update of that step
 *	hd_inprocess_assemble(r, t, NULL)		a complete tensor, assembled from the ranks' parts
 *	hd_inprocess_close(r)
 *
 * The values of parameters depend only on their names and global indices. None is exactly 0 or 1, so no term of a
 * gradient is hidden. Token ids depend only on the sample's number and the position.
 */
#ifndef HD_ENGINE_INPROCESS_H
#define HD_ENGINE_INPROCESS_H
#include "engine/inprocess/net.h"
#include "engine/run/run.h"

/* The value of a tensor that one rank has computed in hd_inprocess_observe; value NULL: it has computed none. */
struct hd_seen {
	double *value; /* the rank's n local elements */
	int64_t n;
};

struct hd_inprocess {
	struct hd_conf *conf;
	struct hd_plan *plan;
	int n; /* ranks */
	struct hd_program **program;
	char **memory; /* by rank: persistent memory, followed by transient memory */
	struct hd_net_in *net;
	struct hd_run run;
	int64_t vocab;
	int64_t members, member; /* it reads the samples of replica `member` of `members`; members 0: all samples */
	int looks;               /* 1: the step in progress keeps what is computed in `seen` */
	struct hd_seen *seen;    /* [rank][tensor][micro-batch; last: HD_STEP] */
	const struct hd_device_ops *device;
	/* Called when a rank has computed the gradient norm and before its update begins; may be NULL. */
	void (*normed)(void *ctx, struct hd_inprocess *r, int rank);
	void *ctx; /* passed to normed */
};

/* Plans a layout and opens all its ranks; ranks 0: as many as the layout needs. *planned becomes 1 once there is a
 * plan: what fails after that should have been refused earlier. */
int hd_inprocess_open(const char *ini, int64_t ranks, struct hd_inprocess **out, int *planned, struct hd_err *err);
/* Like hd_inprocess_open with ranks 0, but in fp32, and on a device that the caller has opened. compute_dtype is that
 * of struct hd_plan_options. hd_inprocess_scalar and hd_inprocess_assemble convert to double; hd_inprocess_address does
 * not. */
int hd_inprocess_open_on(const char *ini, const struct hd_device_ops *device, uint32_t compute_dtype,
			 struct hd_inprocess **out, int *planned, struct hd_err *err);
void hd_inprocess_close(struct hd_inprocess *r); /* r may be NULL */
int hd_inprocess_step(struct hd_inprocess *r, struct hd_err *err);
int hd_inprocess_update(struct hd_inprocess *r, struct hd_err *err); /* with r->run.lr */
/* Runs a step and its update in one go, for plans whose optimizer nodes may begin while movements of the step are
 * still under way. */
int hd_inprocess_train(struct hd_inprocess *r, struct hd_err *err);
/* Runs a step and keeps all its intermediate results, for hd_inprocess_seen. */
int hd_inprocess_observe(struct hd_inprocess *r, struct hd_err *err);
const struct hd_seen *hd_inprocess_seen(const struct hd_inprocess *r, const struct tensor *t, int rank, int64_t micro);

double hd_inprocess_scalar(const struct hd_inprocess *r, const struct tensor *t, int rank);
/* Returns where the rank's part of t is in memory, or NULL if the rank has none. */
double *hd_inprocess_address(const struct hd_inprocess *r, const struct tensor *t, int rank);
struct tensor *hd_inprocess_param(const struct hd_inprocess *r, const char *name); /* returns NULL if not found */
/* Returns the gradient of param that the update reads, or NULL if there is none. */
struct tensor *hd_inprocess_gradient(const struct hd_inprocess *r, const struct tensor *param);

/* Returns the complete tensor, of hd_global_count elements; the caller frees it. It is assembled from `seen` of that
 * micro-batch, or from memory after a step (micro NULL). Returns NULL if some elements are missing. *spread is set to
 * the largest difference between copies of the same part on several ranks; spread may be NULL. */
double *hd_inprocess_assemble(const struct hd_inprocess *r, const struct tensor *t, const int64_t *micro,
			      double *spread);

#endif
