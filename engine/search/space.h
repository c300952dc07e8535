/* SPDX-License-Identifier: Apache-2.0
 * engine/search/space.h - what a search may vary: the strategies that a layout may use with their sizes, keys and
 * order, and keys of other sections. A space is data (conf/spaces/), so a user's own strategy is searched like those
 * that come with Heddle.
 */
#ifndef HD_ENGINE_SEARCH_SPACE_H
#define HD_ENGINE_SEARCH_SPACE_H
#include "engine/config/conf.h"

#define HD_SPACE_MOST 8 /* most strategies, and most keys of other sections */

struct space_alone {        /* a strategy with this size and choice, used alone */
	int64_t size, node; /* node: ranks of a node if only every so many-th belongs to it; 0: those of the machine */
	int choice, refused, stages; /* stages: blocks are distributed along its axis */
	int replicas;                /* each member of its axis has different sequences */
	int node_asked;              /* the plugin asks for the ranks of a node, so its stride may matter */
	char why[200];
};
struct space_strategy {
	char *name; /* of its section: the user's name, if the INI has a section with this plugin */
	char *plugin;
	char *kept; /* lines of the user's section that the search leaves as they are */
	int64_t least, most;
	char **choices;       /* such as "form=2.5d depth=2"; a single empty one if there is nothing to choose */
	int nchoices, nfirst; /* nfirst: the first ones; the others are tried with the best layouts only */
	int stages, replicas;
	struct space_alone *alone; /* one for each size that divides the ranks and each choice */
	int nalone;
};
struct space_key {     /* a key of another section */
	char *name;    /* "train.micro_batch" */
	char **values; /* the first needs least memory */
	int n, nfirst; /* nfirst: the first ones; the others are tried with the best layouts only */
	int plain;     /* index of the INI's own value or of the default; -1: not among them */
};
struct space {
	/* Innermost first, in the order on the mesh that is tried first. */
	struct space_strategy strategies[HD_SPACE_MOST];
	struct space_key keys[HD_SPACE_MOST];
	int n, nkeys;
	int64_t ranks, layers; /* layers: of the model */
	int64_t node;          /* ranks of a node */
	char *name;            /* path of the INI, for errors */
	char *base;            /* text of the INI without its strategies */
};

/* Reads a space. path: a file, or the name of one in conf/spaces/. conf: the user's INI, whose [model] is checked. */
int hd_space_read(const char *path, struct hd_conf *conf, struct space *s, struct hd_err *err);
void hd_space_release(struct space *s);

/* One layout: a point of the space. */
struct space_layout {
	int64_t size[HD_SPACE_MOST]; /* 1: this strategy is not used */
	int choice[HD_SPACE_MOST];
	int value[HD_SPACE_MOST]; /* by key: index of its value */
	int order[HD_SPACE_MOST]; /* strategies, innermost first: all of them, used or not */
};

/* Returns NULL if that strategy may be possible with this size and choice, else why it is not. It is not if it is refused
 * when used alone, whatever its stride. */
const char *hd_space_refuses(const struct space *s, int strategy, int64_t size, int choice);

/* Returns whether the space has that strategy with this size. */
int hd_space_allows(const struct space *s, int strategy, int64_t size);

/* Sets *out to the point of the space that is the layout of an INI. micro_batch: the one that its plan has, since the INI
 * may leave it to the engine. Returns 0 if there is none. */
int hd_space_point(const struct space *s, struct hd_conf *conf, int64_t micro_batch, struct space_layout *out);

/* layout.c: Creates the INI of a layout with the strategies whose bits are set in `with`. The entries of sets
 * ("train.steps=1") override its keys. */
int hd_layout_conf(const struct space *s, const struct space_layout *l, unsigned with, const char *const *sets,
		   int nsets, struct hd_conf **out, struct hd_err *err);
/* Counts the keys that the layout sets: those of its choices, and varied keys that differ from the INI. */
int hd_layout_keys(const struct space *s, const struct space_layout *l);
/* Such as "t 8 form=2d, q 4; micro_batch=2". It leaves out keys that it keeps (hd_layout_keeps). */
char *hd_layout_line(const struct space *s, const struct space_layout *l);
/* Returns whether the layout keeps the INI's own value of a key that has rare values (`also`). */
int hd_layout_keeps(const struct space *s, const struct space_layout *l, int key);
int hd_layout_same(const struct space *s, const struct space_layout *a, const struct space_layout *b);
/* Returns whether each axis has the same number of members on a node in both. Then they differ only in the numbers
 * of their ranks. */
int hd_layout_orders_alike(const struct space *s, const struct space_layout *a, const struct space_layout *b);
int hd_layout_used(const struct space_layout *l, int i); /* returns whether it uses strategy i */

/* Returns the orders of the strategies that a layout uses, malloc'ed, *n of them. Its own is first, and of orders that
 * are alike there is one. */
struct space_layout *hd_layout_orders(const struct space *s, const struct space_layout *l, int *n);

#endif
