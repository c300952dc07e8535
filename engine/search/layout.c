/* SPDX-License-Identifier: Apache-2.0
 * One layout of a space: its INI, its text in tables, and its orders on the mesh.
 */
#include <config.h>
#include "engine/search/space.h"
#include <stdlib.h>
#include <string.h>

int hd_layout_used(const struct space_layout *l, int i)
{
	return l->size[i] > 1;
}

/* Appends a choice ("form=2.5d depth=2"), one key on each line. */
static void append_choice(char **text, const char *choice)
{
	char *copy = hd_strdup(choice), *rest = copy, *word;

	while ((word = strsep(&rest, " ")))
		if (*word)
			hd_append(text, "%s\n", word);
	free(copy);
}

static void append_strategy(char **text, const struct space_strategy *s, int64_t size, int choice)
{
	hd_append(text, "\n[strategy %s]\nplugin = %s\nsize = %lld\n", s->name, s->plugin, (long long)size);
	append_choice(text, s->choices[choice]);
	hd_append(text, "%s", s->kept);
}

int hd_layout_conf(const struct space *s, const struct space_layout *l, unsigned with, const char *const *sets,
		   int nsets, struct hd_conf **out, struct hd_err *err)
{
	char *text = hd_strdup(s->base);
	const char *all[2 * HD_SPACE_MOST];
	char *made[HD_SPACE_MOST];
	int n = 0, rc;

	for (int k = 0; k < s->n; k++) {
		int i = l->order[k];

		if (hd_layout_used(l, i) && with >> i & 1)
			append_strategy(&text, &s->strategies[i], l->size[i], l->choice[i]);
	}
	for (int i = 0; i < s->nkeys; i++) {
		made[i] = hd_format("%s=%s", s->keys[i].name, s->keys[i].values[l->value[i]]);
		if (!hd_layout_keeps(s, l, i))
			all[n++] = made[i];
	}
	for (int i = 0; i < nsets && n < (int)HD_LEN(all); i++)
		all[n++] = sets[i];
	rc = hd_conf_parse(s->name, text, all, n, out, err);
	for (int i = 0; i < s->nkeys; i++)
		free(made[i]);
	free(text);
	return rc;
}

int hd_layout_keeps(const struct space *s, const struct space_layout *l, int key)
{
	const struct space_key *k = &s->keys[key];

	return k->nfirst < k->n && l->value[key] == k->plain;
}

int hd_layout_keys(const struct space *s, const struct space_layout *l)
{
	int n = 0;

	for (int i = 0; i < s->n; i++)
		for (const char *at = s->strategies[i].choices[l->choice[i]]; hd_layout_used(l, i) && *at; at++)
			n += *at == '=';
	for (int i = 0; i < s->nkeys; i++)
		n += l->value[i] != s->keys[i].plain;
	return n;
}

char *hd_layout_line(const struct space *s, const struct space_layout *l)
{
	char *text = hd_strdup("");

	for (int k = 0; k < s->n; k++) {
		const struct space_strategy *of = &s->strategies[l->order[k]];

		if (!hd_layout_used(l, l->order[k]))
			continue;
		hd_append(&text, "%s%s %lld", *text ? ", " : "", of->name, (long long)l->size[l->order[k]]);
		if (*of->choices[l->choice[l->order[k]]])
			hd_append(&text, " %s", of->choices[l->choice[l->order[k]]]);
	}
	if (!*text)
		hd_append(&text, "one rank");
	for (int i = 0, n = 0; i < s->nkeys; i++) {
		const char *dot = strrchr(s->keys[i].name, '.');

		if (!hd_layout_keeps(s, l, i))
			hd_append(&text, "%s%s=%s", n++ ? " " : "; ", dot ? dot + 1 : s->keys[i].name,
				  s->keys[i].values[l->value[i]]);
	}
	return text;
}

/* Compares the orders of the strategies that are used. */
static int same_order(const struct space *s, const struct space_layout *a, const struct space_layout *b)
{
	int i = 0, j = 0;

	for (;; i++, j++) {
		while (i < s->n && !hd_layout_used(a, a->order[i]))
			i++;
		while (j < s->n && !hd_layout_used(b, b->order[j]))
			j++;
		if (i == s->n || j == s->n)
			return i == s->n && j == s->n;
		if (a->order[i] != b->order[j])
			return 0;
	}
}

int hd_layout_same(const struct space *s, const struct space_layout *a, const struct space_layout *b)
{
	for (int i = 0; i < s->n; i++)
		if (a->size[i] != b->size[i] || (hd_layout_used(a, i) && a->choice[i] != b->choice[i]))
			return 0;
	for (int i = 0; i < s->nkeys; i++)
		if (a->value[i] != b->value[i])
			return 0;
	return same_order(s, a, b);
}

/* Returns the members of an axis on one node. If the axis does not fill nodes evenly, returns minus its stride, which
 * no evenly filled axis equals. */
static int64_t near_members(const struct space *s, const struct space_layout *l, int strategy)
{
	int64_t stride = 1, n = l->size[strategy];

	for (int k = 0; l->order[k] != strategy; k++)
		stride *= l->size[l->order[k]];
	if (stride >= s->node)
		return stride % s->node ? -stride : 1;
	if (s->node % stride)
		return -stride;
	if (stride * n <= s->node)
		return s->node % (stride * n) ? -stride : n;
	return n % (s->node / stride) ? -stride : s->node / stride;
}

int hd_layout_orders_alike(const struct space *s, const struct space_layout *a, const struct space_layout *b)
{
	if (s->ranks <= s->node) /* all are on one node */
		return 1;
	for (int i = 0; i < s->n; i++)
		if (hd_layout_used(a, i) && near_members(s, a, i) != near_members(s, b, i))
			return 0;
	return 1;
}

static int already(const struct space *s, const struct space_layout *v, int n, const struct space_layout *l)
{
	for (int i = 0; i < n; i++)
		if (hd_layout_orders_alike(s, &v[i], l))
			return 1;
	return 0;
}

static void swap(int *v, int i, int j)
{
	int t = v[i];

	v[i] = v[j];
	v[j] = t;
}

/* Changes order to the next permutation. Returns 0 if it was the last. */
static int next_order(int *order, int n)
{
	int i = n - 2, j = n - 1;

	while (i >= 0 && order[i] > order[i + 1])
		i--;
	if (i < 0)
		return 0;
	while (order[j] < order[i])
		j--;
	swap(order, i, j);
	for (int a = i + 1, b = n - 1; a < b; a++, b--)
		swap(order, a, b);
	return 1;
}

struct space_layout *hd_layout_orders(const struct space *s, const struct space_layout *l, int *n)
{
	struct space_layout *v = NULL, now = *l;
	size_t cap = 0;
	int used[HD_SPACE_MOST], m = 0, k = 0;

	*n = 0;
	for (int i = 0; i < s->n; i++)
		if (hd_layout_used(l, i))
			used[m++] = i;
	for (int i = 0; i < s->n; i++) /* unused ones come last */
		if (!hd_layout_used(l, i))
			now.order[m + k++] = i;
	v = hd_grow(v, 0, &cap, sizeof(*v));
	v[(*n)++] = *l;
	do {
		for (int i = 0; i < m; i++)
			now.order[i] = used[i];
		if (already(s, v, *n, &now))
			continue;
		v = hd_grow(v, (size_t)*n, &cap, sizeof(*v));
		v[(*n)++] = now;
	} while (next_order(used, m));
	return v;
}
