/* SPDX-License-Identifier: Apache-2.0
 * engine/search/space.h - what a search may vary: the strategies that a layout may use with their sizes, keys and order, and
 * keys of other sections.  It is data (conf/spaces/), so a strategy of one's own is searched like those that come along.
 */
#ifndef HD_ENGINE_SEARCH_SPACE_H
#define HD_ENGINE_SEARCH_SPACE_H
#include "engine/config/conf.h"

#define HD_SPACE_MOST 8 /* strategies; and keys of other sections */

struct space_alone { /* a strategy of this size and choice, and nothing else */
	int64_t size;
	int choice, refused, stages; /* stages: blocks are dealt to its axis */
	int replicas;                /* each of its members has other sequences */
	char why[200];
};
struct space_strategy {
	char *name; /* of the section: the user's, if his INI has one of this plugin */
	char *plugin;
	char *kept; /* lines of the user's section that the search leaves as they are */
	int64_t least, most;
	char **choices;       /* "form=2.5d depth=2"; one that is empty, if there is nothing to choose */
	int nchoices, nfirst; /* nfirst: those before what is tried with the best layouts alone */
	int stages, replicas;
	struct space_alone *alone; /* all sizes that divide the ranks, and all choices */
	int nalone;
};
struct space_key {     /* of another section */
	char *name;    /* "train.micro_batch" */
	char **values; /* the first needs least memory */
	int n, plain;  /* plain: the INI's, or the default; -1: none of them */
};
struct space {
	struct space_strategy strategies[HD_SPACE_MOST]; /* in the mesh order that is tried first */
	struct space_key keys[HD_SPACE_MOST];
	int n, nkeys;
	int64_t ranks, layers; /* layers: of the model */
	int64_t node;          /* ranks of a node */
	char *name;            /* of the INI, for errors */
	char *base;            /* it, without strategies */
};

/* path: of a file, or the name of one of conf/spaces/.  conf: the user's, its [model] checked. */
int hd_space_read(const char *path, struct hd_conf *conf, struct space *s, struct hd_err *err);
void hd_space_release(struct space *s);

/* One layout: a point of the space. */
struct space_layout {
	int64_t size[HD_SPACE_MOST]; /* 1: without this strategy */
	int choice[HD_SPACE_MOST];
	int value[HD_SPACE_MOST]; /* of keys */
	int order[HD_SPACE_MOST]; /* strategies, innermost first: all of them, used or not */
};

/* NULL: that strategy is possible by itself with this size and choice; else why not. */
const char *hd_space_refuses(const struct space *s, int strategy, int64_t size, int choice);

/* Whether the space has that strategy with this size. */
int hd_space_allows(const struct space *s, int strategy, int64_t size);

/* The layout of an INI as a point of the space; 0: it is none. */
int hd_space_point(const struct space *s, struct hd_conf *conf, struct space_layout *out);

/* layout.c: its INI, malloc'ed, of the strategies that `with` has a bit for.  Key sets ("train.steps=1") come over it. */
int hd_layout_conf(const struct space *s, const struct space_layout *l, unsigned with, const char *const *sets,
		   int nsets, struct hd_conf **out, struct hd_err *err);
int hd_layout_keys(const struct space *s, const struct space_layout *l);   /* that it chooses and that are not plain */
char *hd_layout_line(const struct space *s, const struct space_layout *l); /* "t 8 form=2d, q 4; micro_batch=2" */
int hd_layout_same(const struct space *s, const struct space_layout *a, const struct space_layout *b);
/* Whether each axis has as many members on a node as in the other: then nothing but the numbers of ranks differs. */
int hd_layout_orders_alike(const struct space *s, const struct space_layout *a, const struct space_layout *b);
int hd_layout_used(const struct space_layout *l, int i); /* it uses strategy i */

/* Orders of the strategies that a layout uses, each but one of those that are alike: malloc'ed, *n of them, its own first. */
struct space_layout *hd_layout_orders(const struct space *s, const struct space_layout *l, int *n);

#endif
