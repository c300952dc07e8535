/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/judge.h - declarations that the files of this folder share.
 */
#ifndef HD_ENGINE_CONFORM_JUDGE_H
#define HD_ENGINE_CONFORM_JUDGE_H
#include "engine/conform/conform.h"
#include "engine/conform/parts/parts.h"
#include <jansson.h>

/* -- layouts ------------------------------------------------------------------------------------------ */
struct judge_piece {  /* a strategy's section */
	int other;    /* index among the other plugins; -1: the plugin under test */
	int64_t size; /* 0: not given */
	char keys[240];
};
struct layout {
	int family, n;
	int64_t layers; /* 0: four layers */
	int odd;        /* 1: sizes that 4 does not divide */
	int limited;    /* 1: experts have a capacity */
	struct judge_piece piece[4];
};

/* -- a check and its outcome --------------------------------------------------------------------------------------- */
enum { JUDGED_OK, JUDGED_WRONG, JUDGED_SKIPPED };
struct outcome {
	int verdict;
	char *why;            /* lines; NULL: nothing to report */
	char *name;           /* name of the check, if it is only known now; else NULL */
	struct layout layout; /* the layout to compare with one rank; n = 0: none */
	int compared;         /* 1: it was compared */
};

struct judge {
	struct hd_conform_options options;
	const struct hd_plugin_entry *plugin;
	struct hd_plugin_entry **others; /* the plugins found besides the one under test */
	int nothers;
	char *keys;               /* lines for its sections: keys from the user's INI and those that make it exact */
	char *given;              /* the keys from the INI alone */
	char *router;             /* lines of [model] from the INI, for models with experts */
	int axes;                 /* 1: it claims axes of the mesh; 0: it changes the model, so one rank uses it too */
	struct hd_inprocess *one; /* one rank after a step, for the INI `one_ini` */
	char *one_ini;
	struct judge_task *tasks;
	size_t n, cap;
	json_t *results;
	json_t *warnings; /* the engine's warnings, each once */
	json_t *refusals; /* number of refused layouts per reason */
	int accepted;     /* number of checks that ran a layout, since it was not refused */
	int printed, failed, skipped, stuck, warned;
	int *tried, *compared;               /* per family, the layouts to compare with one rank and those compared */
	int *tried_beside, *compared_beside; /* the same per other plugin */
};

struct judge_task {
	char *name;
	void (*run)(struct judge *j, const struct judge_task *t, struct outcome *o);
	struct layout *layout; /* or NULL */
	int64_t number;        /* of a random layout, or a variant of the check; < 0: the check trains nothing */
};
void judge_add(struct judge *j, void (*run)(struct judge *j, const struct judge_task *t, struct outcome *o),
	       struct layout *layout, int64_t number, const char *fmt, ...) HD_PRINTF(5, 6);
void judge_all(struct judge *j, FILE *out); /* runs the tasks in child processes */
/* Exit status of a child that has reported the check that ended it, by a crash, an exit or a loop. */
enum { JUDGE_ENDED = 4 };
/* To be called in the child while it waits for a different process. It may sleep `times` as long as a check may
 * compute; 0: no limit. */
void judge_waits(int times);
void judge_limit(const struct judge *j); /* restarts the limit on processor time; needed in a grandchild too */
/* Runs question(j) in a child process. Returns its result, or `otherwise` if the child does not finish. */
int judge_ask(const struct judge *j, int (*question)(const struct judge *j), int otherwise);
/* Sets the outcome for a layout that was not planned: a refusal is as good as acceptance, unless a mistake of the
 * plugin caused it. Returns 1 if the layout was refused. */
int outcome_refused(const struct judge *j, const struct hd_err *err, struct outcome *o);
/* Reports a state of the plugin that is read but never assigned, so that it stays 0. */
void outcome_constant(const struct judge *j, const struct hd_plan *p, struct outcome *o);
void outcome_set(struct outcome *o, int verdict, const char *fmt, ...) HD_PRINTF(3, 4);

/* -- tap.c ------------------------------------------------------------------------------------------------ */
void tap_result(struct judge *j, FILE *out, const char *name, const struct outcome *o);
/* Prints the lines that are new, and frees them; NULL is allowed. */
void tap_warnings(struct judge *j, FILE *out, char *lines);
void tap_compared(struct judge *j, const struct outcome *o); /* counts the comparison */
void tap_end(struct judge *j, FILE *out);

/* -- layouts.c -------------------------------------------------------------------------------------------- */
enum { FAMILIES = 3 };
/* Families are gpt2, llama and mixtral, followed by those that the plugin defines. first and end: the range on which
 * the plugin is tried. */
int families_first(const struct judge *j);
int families_end(const struct judge *j);
const char *family_name(const struct judge *j, int family);
int family_has_experts(const struct judge *j, int family);
/* layout_ini returns the INI of the layout. layout_one_ini returns that of the one rank with which it is compared,
 * whose micro-batch is `batch` sequences. */
char *layout_ini(const struct judge *j, const struct layout *l);
char *layout_one_ini(const struct judge *j, const struct layout *l, int64_t batch);
/* Returns an INI with the layout's model, a step of `global` sequences and micro-batches of `micro`, without sections
 * of plugins. */
int64_t layout_batch(const struct layout *l); /* sequences per step */
char *layout_model_ini(const struct judge *j, const struct layout *l, int64_t global, int64_t micro);
char *layout_text(const struct judge *j, const struct layout *l); /* the family and all pieces; the caller frees it */
void layout_exact(char **keys, const char *text); /* appends the keys of hd_plugin.approximate as lines of an INI */
struct layout *layout_alone(int family, int64_t size);
/* A layout of these sections, in this order. */
struct layout *layout_of(int family, int n, const struct judge_piece *pieces);
void layouts_fixed(struct judge *j, int family, void (*each)(struct judge *j, struct layout *l));
struct layout *layout_draw(const struct judge *j, int family, int64_t number, int again);
int64_t layout_terms(const struct hd_plan *p); /* total length of the sums through which a gradient passes */

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

/* same.c: returns one rank for comparison with a layout whose plan is `like`; the result is kept in j->one. */
struct hd_inprocess *one_rank(struct judge *j, const struct layout *l, const struct hd_plan *like, struct hd_err *err);
/* judge.c: the ranks of the last stage have the loss. Returns the first of them from rank `from` on, or -1. */
int loss_rank(const struct hd_inprocess *r, int from);
double loss_of(const struct hd_inprocess *r); /* NaN if no rank has it */

#endif
