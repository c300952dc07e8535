/* SPDX-License-Identifier: Apache-2.0
 * plugins/tp/tp.h - what the forms of tensor parallelism share.  Each is a file of its own; strategy.c chooses.
 */
#ifndef TP_H
#define TP_H
#include <heddle/strategy.h>

#define TP_AXES 3

struct tp_form { /* NULL: does nothing */
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
	const struct hd_axis *axis[TP_AXES]; /* what each is says the form */
	int64_t sequence, depth;
	int same_kv; /* 1d: members of the first axis have the same key heads */
};

extern const struct tp_form tp_form_1d, tp_form_2d, tp_form_25d, tp_form_3d;

/* Refuses, with both numbers, what n pieces of a dim of the model cannot be made of.  why: follows "size: ", or "". */
int tp_divides(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why, const char *section,
	       const char *name);
/* The dims that a model's products read and make. */
/* What experts make of embed, where it is not as wide as mlp: cut as that is. */
void tp_rules_of_experts(struct hd_strategy *s, struct hd_plan *p, const struct hd_axis *axis);
int tp_divides_all(struct hd_strategy *s, struct hd_plan *p, int64_t n, const char *why);
/* A parameter that is whole on this axis lives in pieces there, and is gathered for those that read it. */
int tp_home_in_pieces(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *param, const struct hd_axis *axis);
int tp_has(const struct hd_tensor *t, const struct hd_dim *d);

#endif
