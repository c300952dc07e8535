/* SPDX-License-Identifier: Apache-2.0
 * Where the layout of an INI is in a space.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/search/space.h"
#include <stdlib.h>
#include <string.h>

/* Keys that the section gives and the alternative says, if all of them are the same; else -1. */
static int agreement(const struct hd_section *at, const char *choice)
{
	char *copy = hd_strdup(choice), *rest = copy, *word;
	int n = 0;

	while (n >= 0 && (word = strsep(&rest, " "))) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value++ = 0;
		if (hd_section_has(at, word))
			n = strcmp(hd_section_str(at, word), value) ? -1 : n + 1;
	}
	free(copy);
	return n;
}

/* The alternative that says most of what the section gives. */
static int choice_of(const struct space_strategy *of, const struct hd_section *at)
{
	int best = -1, most = -1;

	for (int i = 0; i < of->nchoices; i++) {
		int n = agreement(at, of->choices[i]);

		if (n > most) {
			most = n;
			best = i;
		}
	}
	return best;
}

static int strategy_of(const struct space *s, const struct hd_section *at)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->strategies[i].name, hd_section_name(at)))
			return i;
	return -1;
}

/* Sizes, choices and order of the sections; the size that is left over, of the one that says auto. */
static int point_strategies(const struct space *s, struct hd_conf *conf, struct space_layout *out, int *n)
{
	int64_t given = 1;
	int automatic = -1;

	for (struct hd_section *at = NULL; (at = hd_conf_next(conf, "strategy", at));) {
		int i = strategy_of(s, at);
		const char *size = hd_section_str(at, "size");

		if (i < 0 || out->size[i] > 1)
			return 0;
		if (hd_word_int(*size ? size : "auto", &out->size[i]) < 0)
			automatic = i;
		else
			given *= out->size[i];
		out->choice[i] = choice_of(&s->strategies[i], at);
		out->order[(*n)++] = i;
		if (out->choice[i] < 0 || given < 1)
			return 0;
	}
	if (automatic >= 0) /* of sizes that do not divide the ranks the product is another, which the caller sees */
		out->size[automatic] = s->ranks / given;
	return 1;
}

static int point_keys(const struct space *s, struct space_layout *out)
{
	for (int i = 0; i < s->nkeys; i++) {
		out->value[i] = s->keys[i].plain;
		if (out->value[i] < 0)
			return 0;
	}
	return 1;
}

int hd_space_point(const struct space *s, struct hd_conf *conf, struct space_layout *out)
{
	int64_t ranks = 1;
	int n = 0;

	*out = (struct space_layout){ .size = { 0 } };
	for (int i = 0; i < s->n; i++)
		out->size[i] = 1;
	if (!point_strategies(s, conf, out, &n) || !point_keys(s, out))
		return 0;
	for (int i = 0; i < s->n; i++) {
		int seen = 0;

		for (int k = 0; k < n; k++)
			seen |= out->order[k] == i;
		if (!seen)
			out->order[n++] = i;
		ranks *= out->size[i];
	}
	return ranks == s->ranks;
}
