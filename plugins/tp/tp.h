/* SPDX-License-Identifier: Apache-2.0
 * plugins/tp/tp.h - declarations that the forms of tensor parallelism share. Each form is in a file of its own;
 * strategy.c chooses one.
 */
#ifndef TP_H
#define TP_H
#include <heddle/strategy.h>

#define TP_AXES 3

struct tp_form { /* a NULL slot does nothing */
	const char *name;
	int (*mesh)(struct hd_strategy *s, struct hd_plan *p, int64_t size);
	int (*rewrite)(struct hd_strategy *s, struct hd_plan *p);
	int (*rules)(struct hd_strategy *s, struct hd_plan *p);
	int (*storage)(struct hd_strategy *s, struct hd_plan *p);
	int (*lower)(struct hd_strategy *s, struct hd_plan *p);
};

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct tp_form *form;
	const struct hd_axis *axis[TP_AXES]; /* their meaning depends on the form */
	int64_t sequence, depth;
	int same_kv; /* 1d: members of axis[0] have the same key heads */
};

extern const struct tp_form tp_form_1d, tp_form_2d, tp_form_25d, tp_form_3d;

/* Refuses a size n that does not divide a dim of the model, with both numbers. why: follows "size: ", or "". */
int tp_divides(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why, const char *section,
	       const char *name);
/* Adds rules for the dims of experts that are not as wide as mlp, which shard them as mlp is sharded. */
void tp_rules_of_experts(struct hd_strategy *s, struct hd_plan *p, const struct hd_axis *axis);
/* Like tp_divides, for all dims that a model's products read and write. */
int tp_divides_all(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why);
/* States, masters and gradients, those of a parameter one after the other. */
struct tp_leaves {
	struct hd_tensor **t;
	size_t n;
};
int tp_leaves_find(struct hd_strategy *s, struct hd_plan *p, struct tp_leaves *out);
/* Stores a parameter that is replicated along this axis in pieces along it; readers gather it. */
int tp_store_sharded(struct hd_strategy *s, struct hd_plan *p, const struct tp_leaves *all, struct hd_tensor *param,
		     const struct hd_axis *axis);
int tp_has(const struct hd_tensor *t, const struct hd_dim *d);

#endif
