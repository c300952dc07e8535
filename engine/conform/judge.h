/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/judge.h - what the files of this folder share.
 */
#ifndef HD_ENGINE_CONFORM_JUDGE_H
#define HD_ENGINE_CONFORM_JUDGE_H
#include "engine/conform/conform.h"
#include "engine/conform/parts/parts.h"
#include <jansson.h>

/* -- layouts ------------------------------------------------------------------------------------------ */
struct judge_piece {  /* a section of a strategy */
	int other;    /* index among the other plugins; -1: the one that is judged */
	int64_t size; /* 0: not said */
	char keys[240];
};
struct layout {
	int family, n;
	int64_t layers; /* 0: four */
	int odd;        /* sizes that 4 does not divide */
	int limited;    /* experts have a capacity */
	struct judge_piece piece[4];
};

/* -- a check, and what came of it --------------------------------------------------------------------- */
enum { JUDGED_OK, JUDGED_WRONG, JUDGED_SKIPPED };
struct outcome {
	int verdict;
	char *why;            /* lines; NULL: there is nothing to say */
	char *name;           /* of the check, where it is known only now; else NULL */
	struct layout layout; /* to be compared with one rank; of n = 0: the check compares none */
	int compared;         /* it was */
};

struct judge {
	struct hd_conform_options options;
	const struct hd_plugin_entry *plugin;
	struct hd_plugin_entry **others; /* those that are found beside it */
	int nothers;
	char *keys;               /* lines for its sections: of the INI, and those that make it exact */
	char *given;              /* those of the INI alone */
	int axes;                 /* it claims axes of the mesh; else it changes the model, and one rank has it too */
	struct hd_inprocess *one; /* one rank, computed, for the INI `one_ini` */
	char *one_ini;
	struct judge_task *tasks;
	size_t n, cap;
	json_t *results;
	json_t *warnings; /* of the engine, each once */
	json_t *refusals; /* by reason: how many layouts */
	int accepted;     /* checks that ran what the plugin has planned */
	int printed, failed, skipped, stuck, warned;
	int *tried, *compared;               /* with one rank: layouts of each family */
	int *tried_beside, *compared_beside; /* of them, those with each other plugin */
};

struct judge_task {
	char *name;
	void (*run)(struct judge *j, const struct judge_task *t, struct outcome *o);
	struct layout *layout; /* or NULL */
	int64_t number;        /* of a layout that is drawn; < 0: it trains nothing */
};
void judge_add(struct judge *j, void (*run)(struct judge *j, const struct judge_task *t, struct outcome *o),
	       struct layout *layout, int64_t number, const char *fmt, ...) HD_PRINTF(5, 6);
void judge_all(struct judge *j, FILE *out); /* judge.c: runs the tasks in children */
/* Of the child whose check has been told of, and which ended it: crash, exit, loop. */
enum { JUDGE_ENDED = 4 };
/* In the child.  It waits for another process: it may sleep so many times as long as a check may; 0: without end. */
void judge_waits(int times);
void judge_limit(const struct judge *j); /* the processor's time begins anew, in a child of its own too */
int judge_ask(const struct judge *j, int (*question)(const struct judge *j), int otherwise);
/* A layout that is not planned: refused is as good as accepted, unless a mistake of the plugin is what stops it.  -> 1: refused */
int outcome_refused(const struct judge *j, const struct hd_err *err, struct outcome *o);
/* A state of the plugin's that stays what it was at the beginning, 0: what reads it might be left out. */
void outcome_constant(const struct judge *j, const struct hd_plan *p, struct outcome *o);
void outcome_set(struct outcome *o, int verdict, const char *fmt, ...) HD_PRINTF(3, 4);

/* -- tap.c ------------------------------------------------------------------------------------------------ */
void tap_result(struct judge *j, FILE *out, const char *name, const struct outcome *o);
/* Lines, malloc'ed or NULL: those that are new are printed. */
void tap_warnings(struct judge *j, FILE *out, char *lines);
void tap_compared(struct judge *j, const struct outcome *o); /* counts it */
void tap_end(struct judge *j, FILE *out);

/* -- layouts.c -------------------------------------------------------------------------------------------- */
enum { FAMILIES = 3 };
/* Of gpt2, llama, mixtral, and behind them those that the plugin brings: which it is tried on, and what they are called. */
int families_first(const struct judge *j);
int families_end(const struct judge *j);
const char *family_name(const struct judge *j, int family);
int family_has_experts(const struct judge *j, int family);
/* The INI of the layout, or of the one rank that it is compared with (whose micro-batch is `batch` sequences). */
char *layout_ini(const struct judge *j, const struct layout *l);
char *layout_one_ini(const struct judge *j, const struct layout *l, int64_t batch);
/* Its model, and a step of so many sequences; no section of a plugin. */
int64_t layout_batch(const struct layout *l); /* sequences of a step */
char *layout_model_ini(const struct judge *j, const struct layout *l, int64_t global, int64_t micro);
char *layout_text(const struct judge *j, const struct layout *l); /* the family and all pieces; malloc'ed */
void layout_exact(char **keys, const char *text); /* adds what hd_plugin.approximate says, as lines of an INI */
struct layout *layout_alone(int family, int64_t size);
void layouts_fixed(struct judge *j, int family, void (*each)(struct judge *j, struct layout *l));
struct layout *layout_draw(const struct judge *j, int family, int64_t number, int again);
int64_t layout_terms(const struct hd_plan *p); /* lengths of all sums that a gradient has passed */

/* -- the checks ------------------------------------------------------------------------------------------- */
void tables_add(struct judge *j);
void families_add(struct judge *j);
void meshes_add(struct judge *j);
void same_add(struct judge *j);
void serial_add(struct judge *j);
void vjps_add(struct judge *j);
void optimizer_add(struct judge *j);
void kernels_add(struct judge *j);
void resume_add(struct judge *j);

/* same.c: one rank for a layout whose plan is `like`; kept in j->one. */
struct hd_inprocess *one_rank(struct judge *j, const struct layout *l, const struct hd_plan *like, struct hd_err *err);
/* judge.c: the ranks of the last stage have the loss: the first of them from rank `from` on; -1: there is none. */
int loss_rank(const struct hd_inprocess *r, int from);
double loss_of(const struct hd_inprocess *r); /* NaN where no rank has it */

#endif
