/* SPDX-License-Identifier: Apache-2.0
 * Finds the layout of an INI in a space.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/search/space.h"
#include <stdlib.h>
#include <string.h>

/* Returns how many keys both the section and the alternative set, or -1 if they set one of them differently. */
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

/* Returns the alternative that sets most of the section's keys, or -1 if each sets one differently. */
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

/* Takes sizes, choices and order from the sections. The section with size auto gets the ranks that the others leave.
 * Returns 0 if the layout is no point of the space. */
static int point_strategies(const struct space *s, struct hd_conf *conf, struct space_layout *out, int *n)
{
	int64_t named_ranks = 1;
	int automatic = -1;

	for (struct hd_section *at = NULL; (at = hd_conf_next(conf, "strategy", at));) {
		int i = strategy_of(s, at);
		const char *size = hd_section_str(at, "size");

		if (i < 0 || out->size[i] > 1)
			return 0;
		if (hd_word_int(*size ? size : "auto", &out->size[i]) < 0)
			automatic = i;
		else
			named_ranks *= out->size[i];
		out->choice[i] = choice_of(&s->strategies[i], at);
		out->order[(*n)++] = i;
		if (out->choice[i] < 0 || named_ranks < 1)
			return 0;
	}
	/* If the other sizes do not divide the ranks, the product is not the number of ranks, which the caller sees. */
	if (automatic >= 0)
		out->size[automatic] = s->ranks / named_ranks;
	return 1;
}

/* Returns the index of a number among the values of a key, or -1. */
static int value_of(const struct space_key *k, int64_t number)
{
	int64_t v;

	for (int i = 0; i < k->n; i++)
		if (hd_word_int(k->values[i], &v) >= 0 && v == number)
			return i;
	return -1;
}

static int point_keys(const struct space *s, struct hd_conf *conf, int64_t micro_batch, struct space_layout *out)
{
	int chosen = !hd_section_int(hd_conf_section(conf, NULL, "train"), "micro_batch"); /* by the engine */

	for (int i = 0; i < s->nkeys; i++) {
		out->value[i] = s->keys[i].plain;
		if (chosen && !strcmp(s->keys[i].name, "train.micro_batch"))
			out->value[i] = value_of(&s->keys[i], micro_batch);
		if (out->value[i] < 0)
			return 0;
	}
	return 1;
}

int hd_space_point(const struct space *s, struct hd_conf *conf, int64_t micro_batch, struct space_layout *out)
{
	int64_t ranks = 1;
	int n = 0;

	*out = (struct space_layout){ .size = { 0 } };
	for (int i = 0; i < s->n; i++)
		out->size[i] = 1;
	if (!point_strategies(s, conf, out, &n) || !point_keys(s, conf, micro_batch, out))
		return 0;
	for (int i = 0; i < s->n; i++) {
		int seen = 0;

		for (int k = 0; k < n; k++)
			seen |= out->order[k] == i;
		if (!seen)
			out->order[n++] = i;
		if (!hd_space_allows(s, i, out->size[i]))
			return 0;
		ranks *= out->size[i];
	}
	return ranks == s->ranks;
}
