/* SPDX-License-Identifier: Apache-2.0
 * The layouts in which a plugin is tried, as INI files with a tiny model of each family. The plugin is alone, twice,
 * before and after each other plugin, and in random hybrids.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/base/rng.h"
#include <stdlib.h>
#include <string.h>

static const char *const family_names[FAMILIES] = { "gpt2", "llama", "mixtral" };

/* Lines of [model] for each family, without sizes. */
static const char *const models[FAMILIES] = {
	"family = gpt2\n",
	"family = llama\n",
	"family = mixtral\nz_loss = 0.001\n",
};
/* For layouts that have a section whose number of members is a multiple of 3. */
#define THIRDS "embed = 24\nheads = 6\nmlp = 24\nvocab = 33\n"
/* For all others: sizes that 2, 4 and mostly 8 divide. The vocabulary is odd. */
#define EVEN "embed = 16\nheads = 8\nmlp = 32\nvocab = 33\n"
/* For checks of kernels only: sizes that 4 does not divide, with enough elements for a kernel to share them among
 * threads. */
#define ODD "embed = 10\nheads = 5\nmlp = 67\nvocab = 33\n"
#define TRAIN \
	"[data]\ntrain = none\n[train]\nseq = %d\nglobal_batch = %lld\nsteps = 1\noptimizer = sgd\nclip = 0\n" \
	"weight_decay = 0\nmicro_batch = %lld\n"

static int nbrought(const struct judge *j)
{
	int n = 0;

	while (j->plugin->families && j->plugin->families[n])
		n++;
	return n;
}

/* A plugin with nothing but families is tried on these alone. */
int families_first(const struct judge *j)
{
	return nbrought(j) && !j->plugin->is_strategy ? FAMILIES : 0;
}

int families_end(const struct judge *j)
{
	return FAMILIES + nbrought(j);
}

const char *family_name(const struct judge *j, int family)
{
	return family < FAMILIES ? family_names[family] : j->plugin->families[family - FAMILIES]->name;
}

static int has_thirds(const struct layout *l)
{
	for (int i = 0; i < l->n; i++)
		if (l->piece[i].size % 3 == 0 && l->piece[i].size)
			return 1;
	return 0;
}

int64_t layout_batch(const struct layout *l)
{
	return has_thirds(l) ? 12 : 16;
}

#define LIMIT "capacity_factor = 2"
/* Returns the lines of [model]. */
static char *model_without_limit(const struct judge *j, const struct layout *l)
{
	long long layers = l->layers ? l->layers : 4;
	int three = has_thirds(l);
	const char *sizes = l->odd  ? ODD
			    : three ? THIRDS
				    : EVEN,
		   *grouped = l->odd  ? "kv_heads = 5\n"
			      : three ? "kv_heads = 3\n"
				      : "kv_heads = 4\n",
		   *experts = three ? "experts = 6\n" : "experts = 4\n";
	const struct hd_family_value *v;

	if (l->family < FAMILIES)
		return hd_format("%s%s%slayers = %lld\n%s", models[l->family], l->family ? grouped : "",
				 strstr(models[l->family], "mixtral") ? experts : "", layers, sizes);
	v = j->plugin->families[l->family - FAMILIES]->defaults;
	while (v && v->key && strcmp(v->key, "experts"))
		v++;
	return hd_format("family = %s\n%shead_dim = 4\nmax_seq = %d\n%slayers = %lld\n%s", family_name(j, l->family),
			 grouped, l->odd ? 67 : 16,
			 !v || !v->key || !strcmp(v->value, "0") ? ""
			 : three                                 ? "experts = 6\nexpert_mlp = 12\n"
								 : "experts = 4\nexpert_mlp = 8\n",
			 layers, sizes);
}

int family_has_experts(const struct judge *j, int family)
{
	const struct layout l = { .family = family };
	char *model = model_without_limit(j, &l);
	int has = strstr(model, "experts = ") != NULL;

	free(model);
	return has;
}

/* Removes the line that sets this key, if there is one. */
static void remove_key(char *text, const char *key, size_t length)
{
	for (char *line = text; *line; line += strcspn(line, "\n") + 1)
		if (!strncmp(line, key, length) && line[length] == ' ') {
			const char *next = line + strcspn(line, "\n") + 1;

			memmove(line, next, strlen(next) + 1);
			return;
		}
}

static char *model_of(const struct judge *j, const struct layout *l)
{
	char *model = model_without_limit(j, l);

	if (l->limited)
		hd_append(&model, LIMIT "\n");
	if (!family_has_experts(j, l->family))
		return model;
	for (const char *line = j->router; *line; line += strcspn(line, "\n") + 1)
		remove_key(model, line, strcspn(line, " "));
	hd_append(&model, "%s", j->router);
	return model;
}

char *layout_model_ini(const struct judge *j, const struct layout *l, int64_t global, int64_t micro)
{
	char *model = model_of(j, l), *text = hd_format("[model]\n%s" TRAIN, model,
							l->odd          ? 67
							: has_thirds(l) ? 12
									: 8,
							(long long)global, (long long)micro);

	free(model);
	return text;
}

int64_t layout_terms(const struct hd_plan *p)
{
	const struct hd_model *m = &p->model;

	return m->layers * (16 * m->embed + 2 * m->mlp + 6 * m->seq + 2 * m->head_dim + 30 * 2) + 2 * m->vocab +
	       p->micros * p->batch * m->seq;
}

/* -- as an INI -------------------------------------------------------------------------------------- */
static int count_before(const struct layout *l, int i)
{
	int n = 0;

	for (int k = 0; k < i; k++)
		n += l->piece[k].other == l->piece[i].other;
	return n;
}

/* Appends a text "key=value key=value" as lines. */
void layout_exact(char **keys, const char *text)
{
	struct hd_exact_key k;

	while (hd_exact_next(&text, &k))
		hd_append(keys, "%.*s = %.*s\n", k.nkey, k.key, k.nvalue, k.value);
}

static void add_piece(const struct judge *j, const struct layout *l, int i, int sized, char **text)
{
	const struct judge_piece *x = &l->piece[i];
	const char *name = x->other < 0 ? "x" : j->others[x->other]->name;

	int strategy = x->other >= 0 || j->plugin->strategy_slot;

	hd_append(text, "[%s %s%.0d]\n", strategy ? "strategy" : "plugin", name,
		  count_before(l, i) ? count_before(l, i) + 1 : 0);
	hd_append(text, "%s = %s\n", strategy ? "plugin" : "file", x->other < 0 ? j->plugin->path : name);
	if (x->other < 0)
		hd_append(text, "%s", j->keys);
	else if (j->others[x->other]->approximate)
		layout_exact(text, j->others[x->other]->approximate);
	hd_append(text, "%s", x->keys);
	if (x->size && sized)
		hd_append(text, "size = %lld\n", (long long)x->size);
}

char *layout_ini(const struct judge *j, const struct layout *l)
{
	char *text = layout_model_ini(j, l, layout_batch(l), 1);

	for (int i = 0; i < l->n; i++)
		add_piece(j, l, i, 1, &text);
	return text;
}

char *layout_one_ini(const struct judge *j, const struct layout *l, int64_t batch)
{
	char *text = layout_model_ini(j, l, layout_batch(l), batch);

	for (int i = 0; i < l->n && !j->axes; i++)
		if (l->piece[i].other < 0)
			add_piece(j, l, i, 0, &text);
	return text;
}

char *layout_text(const struct judge *j, const struct layout *l)
{
	char *text = hd_format("%s%s:", family_name(j, l->family), l->limited ? " (" LIMIT ")" : "");

	for (int i = 0; i < l->n; i++) {
		const struct judge_piece *x = &l->piece[i];
		char *keys = hd_strdup(x->keys);

		for (char *c = keys; *c; c++)
			*c = *c == '\n' ? c[1] ? ',' : 0 : *c;
		hd_append(&text, "%s %s", i ? "," : "", x->other < 0 ? j->plugin->name : j->others[x->other]->name);
		if (x->size)
			hd_append(&text, " %lld", (long long)x->size);
		if (*keys)
			hd_append(&text, " (%s)", keys);
		free(keys);
	}
	return text;
}

/* -- the fixed layouts --------------------------------------------------------------------------------------------- */
struct layout *layout_of(int family, int n, const struct judge_piece *pieces)
{
	struct layout *l = hd_alloc(sizeof(*l));

	l->family = family;
	l->n = n;
	for (int i = 0; i < n; i++)
		l->piece[i] = pieces[i];
	return l;
}

struct layout *layout_alone(int family, int64_t size)
{
	return layout_of(family, 1, &(struct judge_piece){ .other = -1, .size = size });
}

void layouts_fixed(struct judge *j, int family, void (*each)(struct judge *j, struct layout *l))
{
	struct judge_piece x = { .other = -1, .size = j->axes ? 2 : 0 };
	static const int64_t sizes[] = { 2, 3, 4, 8 };

	for (size_t i = 0; i < (j->axes ? HD_LEN(sizes) : 1); i++)
		each(j, layout_alone(family, j->axes ? sizes[i] : 0));
	if (j->axes)
		each(j, layout_of(family, 2, (struct judge_piece[]){ x, x }));
	for (int k = 0; k < j->nothers; k++) {
		struct judge_piece other = { .other = k, .size = 2 };

		each(j, layout_of(family, 2, (struct judge_piece[]){ x, other }));
		each(j, layout_of(family, 2, (struct judge_piece[]){ other, x }));
	}
}

/* -- at random ---------------------------------------------------------------------------------------- */
struct layout_drawing {
	uint64_t state;
};

static int below(struct layout_drawing *d, int n)
{
	d->state += 0x9e3779b97f4a7c15u;
	return (int)(hd_hash64(d->state) % (uint64_t)n);
}

static const struct hd_option *option_of(const struct hd_strategy_ops *o, uint32_t i)
{
	return (const void *)((const char *)o->options + (size_t)i * o->option_size);
}

/* Draws one of "a|b|c"; FILE is not drawn. */
static void draw_choice(struct layout_drawing *d, const struct hd_option *k, char *to, size_t room)
{
	int n = 1, at;
	const char *c = k->range;

	for (const char *s = c; *s; s++)
		n += *s == '|';
	at = below(d, n);
	while (at--)
		c = strchr(c, '|') + 1;
	if (strncmp(c, "FILE", 4))
		snprintf(to, room, "%s = %.*s\n", k->key, (int)strcspn(c, "|"), c);
}

/* Draws a value of an option that has only a few. */
static void draw_option(struct layout_drawing *d, const struct hd_option *k, char *to, size_t room)
{
	long long least, most;

	*to = 0;
	if (k->type == HD_OPT_CHOICE)
		draw_choice(d, k, to, room);
	else if (k->type == HD_OPT_BOOL)
		snprintf(to, room, "%s = %s\n", k->key, below(d, 2) ? "yes" : "no");
	else if (k->type == HD_OPT_INT && k->range && sscanf(k->range, "%lld..%lld", &least, &most) == 2 &&
		 most - least < 8)
		snprintf(to, room, "%s = %lld\n", k->key, least + below(d, (int)(most - least) + 1));
}

/* Tells whether the user's INI or the plugin itself has set the option, so that it must stay. */
static int settled(const struct judge *j, const char *key)
{
	size_t n = strlen(key);

	for (const char *at = j->keys; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (!strncmp(at, key, n) && strspn(at + n, " ") + (size_t)(at + n - at) == strcspn(at, "="))
			return 1;
	return 0;
}

static void draw_keys(const struct judge *j, struct layout_drawing *d, struct judge_piece *x)
{
	const struct hd_strategy_ops *o = j->plugin->ops;
	int n = o->noptions ? below(d, 3) : 0;

	for (int i = 0; i < n; i++) {
		const struct hd_option *k = option_of(o, (uint32_t)below(d, (int)o->noptions));
		char line[100];

		draw_option(d, k, line, sizeof(line));
		if (*line && !settled(j, k->key) && !strstr(x->keys, line) &&
		    strlen(x->keys) + strlen(line) < sizeof(x->keys) && !(i && strstr(x->keys, k->key)))
			strcat(x->keys, line);
	}
}

static int64_t product(const struct layout *l)
{
	int64_t n = 1;

	for (int i = 0; i < l->n; i++)
		n *= l->piece[i].size ? l->piece[i].size : 1;
	return n;
}

struct layout *layout_draw(const struct judge *j, int family, int64_t number, int again)
{
	static const int64_t sizes[] = { 2, 2, 2, 4, 4, 8 };
	struct layout_drawing d = { hd_hash64((uint64_t)j->options.seed * 1000003u + (uint64_t)number * 1021u +
					      (uint64_t)again * 17u + (uint64_t)family) };
	struct layout *l = layout_alone(family, 0);

	do {
		l->n = 2 + below(&d, 2);
		for (int i = 0; i < l->n; i++)
			l->piece[i] =
				(struct judge_piece){ below(&d, j->nothers ? j->nothers : 1) - !j->nothers, 2, "" };
		l->piece[below(&d, l->n)] =
			(struct judge_piece){ -1, j->axes ? sizes[below(&d, (int)HD_LEN(sizes))] : 0, "" };
	} while (product(l) > 16 || (l->n == 3 && l->piece[0].other == l->piece[1].other) ||
		 (l->piece[0].other >= 0 && l->piece[l->n - 1].other == l->piece[0].other));
	for (int i = 0; i < l->n; i++)
		if (l->piece[i].other < 0)
			draw_keys(j, &d, &l->piece[i]);
	return l;
}
