/* SPDX-License-Identifier: Apache-2.0
 * Reads the file of a space, and takes from the user's INI all that the search does not choose.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/file/installed.h"
#include "engine/search/space.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_option strategy_keys[] = {
	{ "plugin", HD_OPT_STR, 0, NULL, NULL, "its plugin" },
	{ "size", HD_OPT_STR, 0, "1..", NULL,
	  "LEAST..MOST: range of its sizes; those that divide the ranks are tried" },
	{ "choose", HD_OPT_STR, 0, "", NULL,
	  "alternatives with commas between them, each one or more KEY=VALUE with blanks between" },
	{ "also", HD_OPT_STR, 0, "", NULL, "more of them, tried only with the fastest layouts" },
};
static const struct hd_option vary_keys[] = {
	{ "values", HD_OPT_STR, 0, NULL, NULL, "with commas between them; the one that needs the least memory first" },
	{ "also", HD_OPT_STR, 0, "", NULL, "more of them, tried only with the fastest layouts" },
};

/* Appends the parts of a text, between commas, to the *n strings of v. Returns the list. */
static char **add_parts(char **v, const char *text, int *n)
{
	char *copy = hd_strdup(text), *rest = copy, *part;
	size_t cap = (size_t)*n;

	while ((part = strsep(&rest, ","))) {
		v = hd_grow(v, (size_t)*n, &cap, sizeof(*v));
		v[(*n)++] = hd_strdup(hd_parse_trim(part));
	}
	free(copy);
	return v;
}

static int sizes_of(struct hd_conf *c, struct hd_section *s, struct space_strategy *to, struct hd_err *err)
{
	const char *text = hd_section_str(s, "size"), *dots = strstr(text, "..");
	char *least = hd_strdup(text);
	int bad;

	least[dots ? (size_t)(dots - text) : strlen(text)] = 0;
	to->most = INT64_MAX;
	bad = hd_word_int(least, &to->least) < 0 || to->least < 1 ||
	      (dots && dots[2] && hd_word_int(dots + 2, &to->most) < 0);
	if (!dots)
		to->most = to->least;
	free(least);
	if (bad)
		return hd_section_fail(c, s, "size", err, HD_EINVAL, "%s is not LEAST..MOST", text);
	if (to->most < to->least)
		return hd_section_fail(c, s, "size", err, HD_EINVAL, "%s: LEAST is greater than MOST", text);
	return HD_OK;
}

/* Returns whether an alternative sets this key, which has n characters. */
static int sets_key(const char *choice, const char *key, size_t n)
{
	const char *at = choice;

	while (*at) {
		at += strspn(at, " ");
		if (!strncmp(at, key, n) && at[n] == '=')
			return 1;
		at += strcspn(at, " ");
	}
	return 0;
}

static int is_chosen(const struct space_strategy *s, const char *line)
{
	size_t n = strcspn(line, " =");

	if ((n == 4 && !strncmp(line, "size", n)) || (n == 6 && !strncmp(line, "plugin", n)))
		return 1;
	for (int i = 0; i < s->nchoices; i++)
		if (sets_key(s->choices[i], line, n))
			return 1;
	return 0;
}

/* Where the user's INI is being read. `base` gets all lines outside strategies. Each strategy gets the lines of its
 * section whose keys are not chosen. */
struct user_line {
	struct space *space;
	struct hd_conf *user;
	struct space_strategy *of; /* strategy whose section it is in, or NULL */
	struct hd_section *at;     /* that section */
	char *kept;                /* its lines so far that are not chosen */
	int strategy;
	int taken[HD_SPACE_MOST]; /* by strategy: the user has a section of its plugin */
};

/* Returns the strategy of the space for a user's section: with its plugin, if possible with its name too, and not taken
 * by another section. Returns a taken one if there is no other, or NULL. */
static struct space_strategy *match(const struct user_line *u, const char *name, const char *plugin)
{
	struct space_strategy *best = NULL;
	int most = -1;

	for (int i = 0; i < u->space->n; i++) {
		struct space_strategy *s = &u->space->strategies[i];
		int merit = 2 * !u->taken[i] + !strcmp(s->name, name);

		if (strcmp(s->plugin, plugin) || merit <= most)
			continue;
		best = s;
		most = merit;
	}
	return best;
}

static int begin_section(struct user_line *u, const char *line, struct hd_err *err)
{
	char *name;

	u->of = NULL;
	u->strategy = !strncmp(line, "[strategy ", 10);
	if (!u->strategy)
		return HD_OK;
	name = hd_strdup(line + 10);
	name[strcspn(name, "]")] = 0;
	u->at = hd_conf_section(u->user, "strategy", name);
	u->of = match(u, name, hd_section_str(u->at, "plugin"));
	free(name);
	if (u->of)
		return HD_OK;
	return hd_err_set(err, HD_EINVAL,
			  "%s: %s: the space has no strategy of its plugin; name a space that does with --space",
			  hd_conf_path(u->user), line);
}

/* Gives the section's name and lines to its strategy. If an earlier section has the strategy, both must have the same
 * lines, since a layout of the space has it once. */
static int end_section(struct user_line *u, struct hd_err *err)
{
	int *taken = u->of ? &u->taken[u->of - u->space->strategies] : NULL;

	if (!u->of)
		return HD_OK;
	if (*taken && strcmp(u->of->kept, u->kept))
		return hd_section_fail(u->user, u->at, "plugin", err, HD_EINVAL,
				       "[strategy %s] has the same plugin and other keys that a search keeps; name a "
				       "space with a strategy for each with --space",
				       u->of->name);
	if (!*taken) {
		free(u->of->name), free(u->of->kept);
		u->of->name = hd_strdup(hd_section_name(u->at));
		u->of->kept = hd_strdup(u->kept);
	}
	*taken = 1;
	return HD_OK;
}

static int take_line(struct user_line *u, const char *line, struct hd_err *err)
{
	if (*line == '[') {
		HD_TRY(end_section(u, err));
		free(u->kept);
		u->kept = hd_strdup("");
		HD_TRY(begin_section(u, line, err));
	}
	if (!u->strategy)
		hd_append(&u->space->base, "%s\n", line);
	else if (*line && *line != '[' && !is_chosen(u->of, line))
		hd_append(&u->kept, "%s\n", line);
	return HD_OK;
}

/* Returns whether a strategy other than the i-th has the name. */
static int is_taken(const struct space *s, int i, const char *name)
{
	for (int k = 0; k < s->n; k++)
		if (k != i && !strcmp(s->strategies[k].name, name))
			return 1;
	return 0;
}

/* Renames strategy i of the space if the user's section of another one has its name: b becomes b2. */
static void rename_clash(struct space *s, int i)
{
	char *was = s->strategies[i].name, *name = hd_strdup(was);

	for (int k = 2; is_taken(s, i, name); k++) {
		free(name);
		name = hd_format("%s%d", was, k);
	}
	s->strategies[i].name = name;
	free(was);
}

static int take_user(struct space *s, struct hd_conf *user, struct hd_err *err)
{
	char *text = hd_conf_text(user), *rest = text, *line;
	struct user_line u = { .space = s, .user = user, .kept = hd_strdup("") };

	s->base = hd_strdup("");
	while (!err->code && (line = strsep(&rest, "\n")))
		take_line(&u, line, err);
	if (!err->code)
		end_section(&u, err);
	for (int i = 0; i < s->n; i++)
		if (!u.taken[i])
			rename_clash(s, i);
	free(text), free(u.kept);
	return err->code;
}

static int strategy(struct hd_conf *c, struct hd_section *at, struct space *s, struct hd_err *err)
{
	static const struct hd_key_table table = { strategy_keys, HD_LEN(strategy_keys), 0 };
	struct space_strategy *to = &s->strategies[s->n];

	HD_TRY(hd_section_check(c, at, &table, 1, err));
	if (s->n == HD_SPACE_MOST)
		return hd_section_fail(c, at, "plugin", err, HD_EINVAL, "more than %d strategies", HD_SPACE_MOST);
	HD_TRY(sizes_of(c, at, to, err));
	to->name = hd_strdup(hd_section_name(at));
	to->plugin = hd_strdup(hd_section_str(at, "plugin"));
	to->kept = hd_strdup("");
	to->choices = add_parts(NULL, hd_section_str(at, "choose"), &to->nchoices);
	to->nfirst = to->nchoices;
	if (*hd_section_str(at, "also"))
		to->choices = add_parts(to->choices, hd_section_str(at, "also"), &to->nchoices);
	s->n++;
	return HD_OK;
}

/* Returns the index of the value that the INI has without the search, or -1 if it is none of them. */
static int plain_value(const struct space_key *k, struct hd_conf *user)
{
	char *section = hd_strdup(k->name), *dot = strrchr(section, '.');
	int i = k->n;

	if (dot) {
		*dot = 0;
		for (i = 0; i < k->n; i++)
			if (!strcmp(k->values[i], hd_section_str(hd_conf_section(user, NULL, section), dot + 1)))
				break;
	}
	free(section);
	return i < k->n ? i : -1;
}

static int varied(struct hd_conf *c, struct hd_section *at, struct hd_conf *user, struct space *s, struct hd_err *err)
{
	static const struct hd_key_table table = { vary_keys, HD_LEN(vary_keys), 0 };
	struct space_key *to = &s->keys[s->nkeys];

	HD_TRY(hd_section_check(c, at, &table, 1, err));
	if (s->nkeys == HD_SPACE_MOST)
		return hd_section_fail(c, at, "values", err, HD_EINVAL, "more than %d keys", HD_SPACE_MOST);
	to->name = hd_strdup(hd_section_name(at));
	to->values = add_parts(NULL, hd_section_str(at, "values"), &to->n);
	to->nfirst = to->n;
	if (*hd_section_str(at, "also"))
		to->values = add_parts(to->values, hd_section_str(at, "also"), &to->n);
	to->plain = plain_value(to, user);
	s->nkeys++;
	return HD_OK;
}

static int read_sections(struct hd_conf *c, struct hd_conf *user, struct space *s, struct hd_err *err)
{
	static const char *const names[] = { NULL }, *const kinds[] = { "strategy", "vary", NULL };

	HD_TRY(hd_conf_known(c, names, kinds, err));
	for (struct hd_section *at = NULL; (at = hd_conf_next(c, "strategy", at));)
		HD_TRY(strategy(c, at, s, err));
	for (struct hd_section *at = NULL; (at = hd_conf_next(c, "vary", at));)
		HD_TRY(varied(c, at, user, s, err));
	return take_user(s, user, err);
}

int hd_space_read(const char *name, struct hd_conf *conf, struct space *s, struct hd_err *err)
{
	char *path = hd_installed_find("spaces", name, err);
	struct hd_conf *c = NULL;

	if (!path)
		return err->code;
	s->name = hd_strdup(hd_conf_path(conf));
	s->layers = hd_section_int(hd_conf_section(conf, NULL, "model"), "layers");
	if (hd_conf_read(path, NULL, 0, &c, err) >= 0)
		read_sections(c, conf, s, err);
	hd_conf_destroy(c);
	free(path);
	return err->code;
}

const char *hd_space_refuses(const struct space *s, int strategy, int64_t size, int choice)
{
	const struct space_strategy *of = &s->strategies[strategy];

	for (int i = 0; i < of->nalone; i++)
		if (of->alone[i].size == size && of->alone[i].choice == choice)
			return of->alone[i].refused ? of->alone[i].why : NULL;
	return NULL;
}

int hd_space_allows(const struct space *s, int strategy, int64_t size)
{
	const struct space_strategy *of = &s->strategies[strategy];

	return size >= of->least && size <= of->most && !(of->stages && size > s->layers);
}

static void free_list(char **v, int n)
{
	while (n)
		free(v[--n]);
	free(v);
}

void hd_space_release(struct space *s)
{
	for (int i = 0; i < s->n; i++) {
		struct space_strategy *of = &s->strategies[i];

		free(of->name), free(of->plugin), free(of->kept);
		free_list(of->choices, of->nchoices);
		free(of->alone);
	}
	for (int i = 0; i < s->nkeys; i++) {
		free(s->keys[i].name);
		free_list(s->keys[i].values, s->keys[i].n);
	}
	free(s->base), free(s->name);
}
