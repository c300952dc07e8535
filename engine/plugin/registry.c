/* SPDX-License-Identifier: Apache-2.0
 * Finding plugins, and accepting or refusing them.
 *
 * A plugin is judged from data: its entry is pure and returns const tables, and nothing else of it
 * runs before all checks have passed. Its table is copied into a full one of this engine (the
 * shorter of the two lengths counts). So plugins of an older minor, whose table ends earlier,
 * and of a newer one, whose table goes on, are called through the same slots. A refusal names
 * the field and both values.
 */
#include <config.h>
#include "engine/plugin/registry.h"
#include "engine/base/library.h"
#include "engine/base/parse.h"
#include "engine/plugin/loader.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes: no table is larger for centuries; what claims to be is not a table. */
#define TABLE_MAX 4096
#define STR_(x) #x
#define STR(x) STR_(x)
#define ENTRY "heddle_plugin_v" STR(HD_ABI_MAJOR)

struct known_plugin {
	struct hd_plugin_entry e; /* first: entries are handed out by its address */
	struct hd_strategy_ops table;
	struct hd_module *module; /* accepted: what is loaded stays as it is */
	int by_name;              /* the search has found it */
};
static struct known_plugin **all;
static size_t nall, all_cap;

/* -- acceptance */

static const char *age(unsigned theirs, unsigned ours)
{
	return theirs > ours ? "newer" : "older";
}

/* An entry of another major means a plugin of another time, not a file that is no plugin. */
static int no_entry(struct hd_module *m, const char *elsewhere, struct hd_plugin_entry *e, struct hd_err *err)
{
	char name[32];

	for (unsigned v = 0; v < 32; v++) {
		snprintf(name, sizeof(name), "heddle_plugin_v%u", v);
		if (v == HD_ABI_MAJOR || !hd_loader_symbol(m, name, NULL))
			continue;
		e->abi_major = (uint16_t)v;
		return hd_err_set(err, HD_EABI,
				  "exports %s: abi_major is %u, %s than this engine's %d: build it again with this "
				  "engine's headers",
				  name, v, age(v, HD_ABI_MAJOR), HD_ABI_MAJOR);
	}
	if (elsewhere)
		return hd_err_set(err, HD_EABI, "has no %s of its own: the one it finds is in %s", ENTRY, elsewhere);
	return hd_err_set(err, HD_EABI, "exports no %s: it is not a heddle plugin", ENTRY);
}

/* Of this major any minor fits: tables carry their sizes, and what is not known must not be used. */
static int check_version(const struct hd_plugin *p, struct hd_err *err)
{
	if (p->abi_major != HD_ABI_MAJOR)
		return hd_err_set(err, HD_EABI, "abi_major is %u, %s than this engine's %d", p->abi_major,
				  age(p->abi_major, HD_ABI_MAJOR), HD_ABI_MAJOR);
	return 0;
}

/* A refusal of what a later minor has brought says so. */
static int later(const struct hd_plugin *p, struct hd_err *err)
{
	char *text;

	if (p->abi_minor <= HD_ABI_MINOR)
		return err->code;
	text = hd_strdup(err->text);
	err->code = 0;
	hd_err_set(err, HD_EABI, "%s (built for ABI %u.%u, this engine has %d.%d)", text, p->abi_major, p->abi_minor,
		   HD_ABI_MAJOR, HD_ABI_MINOR);
	free(text);
	return err->code;
}

/* What a table has beyond this engine's must be NULL: a slot that nobody calls is a promise that nobody keeps. */
static int check_rest(const char *what, const void *table, size_t size, size_t ours, struct hd_err *err)
{
	for (size_t i = ours; i < size; i++)
		if (((const char *)table)[i])
			return hd_err_set(err, HD_EABI,
					  "%s: the table has %zu bytes, this engine's has %zu, and byte %zu is not 0",
					  what, size, ours, i);
	return 0;
}

static int check_text(const char *field, const char *text, size_t room, struct hd_err *err)
{
	if (memchr(text, 0, room))
		return 0;
	return hd_err_set(err, HD_EABI, "%s has no end within its %zu bytes", field, room);
}

/* build: "key=value ..." of what else must agree: minor, the least that the plugin can work with. */
static int check_build(const struct hd_plugin *p, struct hd_err *err)
{
	const char *build = p->build + strspn(p->build, " ");
	long least;
	char *end;

	if (!*build)
		return 0;
	if (strncmp(build, "minor=", 6))
		return hd_err_set(err, HD_EABI, "build asks for %.*s, and this engine knows minor alone",
				  (int)strcspn(build, " "), build);
	least = strtol(build + 6, &end, 10);
	if (end == build + 6 || *end || least < 0)
		return hd_err_set(err, HD_EABI, "build is \"%s\", it must be \"minor=NUMBER\"", p->build);
	if (least > HD_ABI_MINOR)
		return hd_err_set(err, HD_EABI, "needs ABI %d.%ld, this engine has %d.%d", HD_ABI_MAJOR, least,
				  HD_ABI_MAJOR, HD_ABI_MINOR);
	return 0;
}

static int has_table(const struct hd_plugin *p)
{
	return p->strategy || (HD_HAS(p, kernels) && p->kernels) || (HD_HAS(p, optimizer) && p->optimizer) ||
	       (HD_HAS(p, families) && p->families);
}

static int check_optimizer(const struct hd_optimizer_ops *o, struct hd_err *err)
{
	if (o && (o->size > TABLE_MAX || !HD_HAS(o, update)))
		return hd_err_set(err, HD_EABI, "optimizer: size is %zu, this engine's table has %zu", o->size,
				  sizeof(*o));
	if (o && !o->update)
		return hd_err_set(err, HD_EABI, "optimizer: slot update is mandatory and missing (size is %zu)",
				  o->size);
	return o ? check_rest("optimizer", o, o->size, sizeof(*o), err) : 0;
}

static int check_family(const struct hd_family_ops *const *all, size_t i, struct hd_err *err)
{
	const struct hd_family_ops *f = all[i];

	if (f->size > TABLE_MAX || !HD_HAS(f, window_absent))
		return hd_err_set(err, HD_EABI, "family %zu: size is %zu, this engine's table has %zu", i, f->size,
				  sizeof(*f));
	if (!f->name || !*f->name || strpbrk(f->name, " \t\n"))
		return hd_err_set(err, HD_EABI, "family %zu: name is \"%s\", it must be one word", i,
				  f->name ? f->name : "");
	for (size_t j = 0; j < i; j++)
		if (!strcmp(all[j]->name, f->name))
			return hd_err_set(err, HD_EABI, "families %zu and %zu are both %s", j, i, f->name);
	return check_rest(f->name, f, f->size, sizeof(*f), err);
}

static int check_families(const struct hd_family_ops *const *all, struct hd_err *err)
{
	for (size_t i = 0; all && all[i]; i++) {
		if (i == TABLE_MAX)
			return hd_err_set(err, HD_EABI, "families: the list has no end within %d", TABLE_MAX);
		HD_TRY(check_family(all, i, err));
	}
	return 0;
}

static int check_identity(const struct hd_plugin *p, struct hd_plugin_entry *e, struct hd_err *err)
{
	if (p->magic != HD_MAGIC)
		return hd_err_set(err, HD_EABI, "magic is 0x%08x, not 0x%08x", p->magic, HD_MAGIC);
	e->abi_major = p->abi_major;
	e->abi_minor = p->abi_minor;
	HD_TRY(check_version(p, err));
	HD_TRY(check_text("name", p->name, sizeof(p->name), err));
	HD_TRY(check_text("version", p->version, sizeof(p->version), err));
	HD_TRY(check_text("build", p->build, sizeof(p->build), err));
	e->version = hd_strdup(p->version);
	if (strcmp(p->name, e->name))
		return hd_err_set(err, HD_EABI, "name is \"%s\", the file's name says \"%s\"", p->name, e->name);
	HD_TRY(check_build(p, err));
	if (p->size > TABLE_MAX || !HD_HAS(p, strategy) || !has_table(p))
		return hd_err_set(err, HD_EABI,
				  "has no table: neither strategy, kernels, optimizer nor families (size is %zu)",
				  p->size);
	return check_rest("plugin", p, p->size, sizeof(*p), err);
}

/* Messages, keys and heddle.ini(5) print these texts. */
static int check_line(const struct hd_option *k, const char *field, const char *text, struct hd_err *err)
{
	for (const char *p = text; p && *p; p++)
		if (iscntrl((unsigned char)*p))
			return hd_err_set(err, HD_EABI, "option %s: %s has byte %u, it must be one line", k->key, field,
					  (unsigned char)*p);
	return 0;
}

static int check_option(const struct hd_option *k, size_t size, struct hd_err *err)
{
	char what[100];

	if (k->key[strspn(k->key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
		return hd_err_set(err, HD_EABI, "option \"%s\": a key has letters, digits and _", k->key);
	if (!strcmp(k->key, "plugin") || !strcmp(k->key, "size"))
		return hd_err_set(err, HD_EABI, "option %s: this key is the engine's", k->key);
	if (k->type > HD_OPT_CHOICE)
		return hd_err_set(err, HD_EABI, "option %s: type is %u, this engine knows 0..%d", k->key, k->type,
				  HD_OPT_CHOICE);
	if (k->zero)
		return hd_err_set(err, HD_EABI, "option %s: zero is %u, it must be 0", k->key, k->zero);
	if (k->type == HD_OPT_CHOICE && !k->range)
		return hd_err_set(err, HD_EABI, "option %s: a choice without range", k->key);
	HD_TRY(check_line(k, "default_value", k->default_value, err));
	HD_TRY(check_line(k, "range", k->range, err));
	HD_TRY(check_line(k, "help", k->help, err));
	snprintf(what, sizeof(what), "option %s", k->key);
	return check_rest(what, k, size, sizeof(*k), err);
}

static const struct hd_option *option_at(const struct hd_strategy_ops *o, size_t i)
{
	return (const void *)((const char *)o->options + i * o->option_size);
}

static int check_options(const struct hd_strategy_ops *o, struct hd_err *err)
{
	const struct hd_option *k;

	if (!o->noptions)
		return 0;
	if (!o->options || o->noptions > TABLE_MAX)
		return hd_err_set(err, HD_EABI, "noptions is %u, options is %s", o->noptions,
				  o->options ? "set" : "NULL");
	if (o->option_size < sizeof(*k) || o->option_size > TABLE_MAX || o->option_size % sizeof(void *))
		return hd_err_set(err, HD_EABI, "option_size is %u, this engine's is %zu", o->option_size, sizeof(*k));
	for (uint32_t i = 0; i < o->noptions; i++) {
		k = option_at(o, i);
		if (!k->key || !*k->key)
			return hd_err_set(err, HD_EABI, "option %u of %u has no key", i, o->noptions);
		HD_TRY(check_option(k, o->option_size, err));
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(option_at(o, j)->key, k->key))
				return hd_err_set(err, HD_EABI, "options %u and %u are both %s", j, i, k->key);
	}
	return 0;
}

static int has_option(const struct hd_strategy_ops *o, const char *key, size_t n)
{
	for (uint32_t i = 0; i < o->noptions; i++) {
		const struct hd_option *k = option_at(o, i);

		if (strlen(k->key) == n && !strncmp(k->key, key, n))
			return 1;
	}
	return 0;
}

/* "key=value key=value" of the plugin's own options, at least one. */
static int check_keys(const char *field, const char *text, const struct hd_strategy_ops *o, struct hd_err *err)
{
	for (const char *at = text + strspn(text, " "); *at || at == text; at += strspn(at, " ")) {
		size_t n = strcspn(at, "= "), word = strcspn(at, " ");

		if (!n || at[n] != '=' || n + 1 == word)
			return hd_err_set(err, HD_EABI, "%s is \"%s\", it must be \"key=value ...\"", field, text);
		if (!has_option(o, at, n))
			return hd_err_set(err, HD_EABI, "%s is \"%s\", and the plugin has no option %.*s", field, text,
					  (int)n, at);
		at += word;
	}
	return 0;
}

/* An approximate plugin has this table: with `one` or with `update`, and not with both. */
static int check_serial(const struct hd_serial_ops *s, const struct known_plugin *k, struct hd_err *err)
{
	if (s->size > TABLE_MAX || !HD_HAS(s, update))
		return hd_err_set(err, HD_EABI, "serial: size is %zu, this engine's table has %zu", s->size,
				  sizeof(*s));
	HD_TRY(check_rest("serial", s, s->size, sizeof(*s), err));
	if (!k->e.approximate)
		return hd_err_set(err, HD_EABI, "serial: the plugin is not approximate, so one rank trains as it does");
	if (!s->one == !s->update)
		return hd_err_set(err, HD_EABI, "serial: it has %s of one and update, and must have one of them",
				  s->one ? "both" : "neither");
	if (s->keys)
		HD_TRY(check_keys("serial.keys", s->keys, &k->table, err));
	return s->one ? check_keys("serial.one", s->one, &k->table, err) : 0;
}

/* -- kernels */
static int is_device(const char *name)
{
	return !strcmp(name, "cpu") || !strcmp(name, "cuda") || !strcmp(name, "ref");
}

static int check_kernel(const struct hd_kernel_ops *const *all, size_t i, struct hd_err *err)
{
	const struct hd_kernel_ops *k = all[i];

	if (k->size > TABLE_MAX || !HD_HAS(k, run))
		return hd_err_set(err, HD_EABI, "kernel %zu: size is %zu, this engine's table has %zu", i, k->size,
				  sizeof(*k));
	if (!k->name || !*k->name || strpbrk(k->name, " \t\n"))
		return hd_err_set(err, HD_EABI, "kernel %zu: name is \"%s\", it must be one word", i,
				  k->name ? k->name : "");
	if (!k->device || !is_device(k->device))
		return hd_err_set(err, HD_EABI, "kernel %s: device is \"%s\", this engine knows cpu, cuda and ref",
				  k->name, k->device ? k->device : "");
	HD_TRY(check_rest(k->name, k, k->size, sizeof(*k), err));
	if (!k->prepare || !k->run)
		return hd_err_set(err, HD_EABI, "kernel %s of %s: slot %s is mandatory and missing", k->name, k->device,
				  k->prepare ? "run" : "prepare");
	for (size_t j = 0; j < i; j++)
		if (!strcmp(all[j]->name, k->name) && !strcmp(all[j]->device, k->device))
			return hd_err_set(err, HD_EABI, "kernels %zu and %zu are both %s of %s", j, i, k->name,
					  k->device);
	return 0;
}

static int check_kernels(const struct hd_kernel_ops *const *all, struct hd_err *err)
{
	for (size_t i = 0; all && all[i]; i++) {
		if (i == TABLE_MAX)
			return hd_err_set(err, HD_EABI, "kernels: the list has no end within %d", TABLE_MAX);
		HD_TRY(check_kernel(all, i, err));
	}
	return 0;
}

const struct hd_kernel_ops *hd_registry_kernel(const struct hd_plugin_entry *e, const char *device, const char *name)
{
	for (size_t i = 0; e->kernels && e->kernels[i]; i++)
		if (!strcmp(e->kernels[i]->name, name) && !strcmp(e->kernels[i]->device, device))
			return e->kernels[i];
	return NULL;
}

static int stub(struct hd_strategy *self, struct hd_plan *p)
{
	(void)self;
	(void)p;
	return HD_OK;
}

static int stub_schedule(struct hd_strategy *self, struct hd_plan *p, int64_t micro_batches)
{
	(void)micro_batches;
	return stub(self, p);
}

static void stub_close(struct hd_strategy *self)
{
	(void)self;
}

static void fill(struct hd_strategy_ops *t, struct hd_plugin_entry *e)
{
	e->orders = !!t->schedule;
	e->strategy_slot = t->mesh ? "mesh" : t->rules ? "rules" : t->schedule ? "schedule" : NULL;
	t->close = t->close ? t->close : stub_close;
	t->rewrite = t->rewrite ? t->rewrite : stub;
	t->rules = t->rules ? t->rules : stub;
	t->storage = t->storage ? t->storage : stub;
	t->lower = t->lower ? t->lower : stub;
	t->schedule = t->schedule ? t->schedule : stub_schedule;
}

static int normalise(struct known_plugin *k, const struct hd_strategy_ops *theirs, struct hd_err *err)
{
	struct hd_strategy_ops t = { .size = 0 };
	size_t n = theirs->size;

	/* A table of half a slot would make half an address. */
	if (!n || n > TABLE_MAX || n % sizeof(void *))
		return hd_err_set(err, HD_EABI, "strategy: size is %zu, this engine's table has %zu", n, sizeof(t));
	HD_TRY(check_rest("strategy", theirs, n, sizeof(t), err));
	memcpy(&t, theirs, n < sizeof(t) ? n : sizeof(t));
	t.size = sizeof(t);
	HD_TRY(check_options(&t, err));
	fill(&t, &k->e);
	k->table = t;
	return 0;
}

static int check_tables(const struct hd_plugin *p, struct known_plugin *k, struct hd_err *err)
{
	static const struct hd_strategy_ops none = { .size = sizeof(none) };

	HD_TRY(check_identity(p, &k->e, err));
	HD_TRY(normalise(k, p->strategy ? p->strategy : &none, err));
	k->e.is_strategy = p->strategy != NULL;
	k->e.kernels = HD_HAS(p, kernels) ? p->kernels : NULL;
	HD_TRY(check_kernels(k->e.kernels, err));
	k->e.optimizer = HD_HAS(p, optimizer) ? p->optimizer : NULL;
	HD_TRY(check_optimizer(k->e.optimizer, err));
	k->e.families = HD_HAS(p, families) ? p->families : NULL;
	HD_TRY(check_families(k->e.families, err));
	k->e.approximate = HD_HAS(p, approximate) ? p->approximate : NULL;
	if (k->e.approximate)
		HD_TRY(check_keys("approximate", k->e.approximate, &k->table, err));
	k->e.serial = HD_HAS(p, serial) ? p->serial : NULL;
	return k->e.serial ? check_serial(k->e.serial, k, err) : 0;
}

static int accept(struct hd_module *m, struct known_plugin *k, struct hd_err *err)
{
	const struct hd_plugin *(*entry)(void);
	const struct hd_plugin *p;
	const char *elsewhere;
	void *at = hd_loader_symbol(m, ENTRY, &elsewhere);

	if (!at)
		return no_entry(m, elsewhere, &k->e, err);
	memcpy(&entry, &at, sizeof(entry)); /* C has no cast from object to function */
	p = entry();
	if (!p)
		return hd_err_set(err, HD_EABI, "%s returns NULL", ENTRY);
	return check_tables(p, k, err) ? later(p, err) : 0;
}

static void load(struct known_plugin *k)
{
	struct hd_module *m = NULL;
	struct hd_err err = { .code = 0 };

	free(k->e.why);
	k->e.why = NULL;
	k->e.version = "";
	if (hd_loader_open(k->e.path, &m, &err) || accept(m, k, &err)) {
		k->e.why = hd_one_line(hd_strdup(err.text));
		hd_loader_close(m);
		return;
	}
	hd_loader_keep(m);
	k->module = m;
	k->e.ops = &k->table;
}

/* -- finding */

/* File name without directory, lib, heddle_ and .so. */
static char *name_of(const char *path)
{
	const char *base = strrchr(path, '/');
	size_t n;
	char *name;

	base = base ? base + 1 : path;
	base += strncmp(base, "lib", 3) ? 0 : 3;
	base += strncmp(base, "heddle_", 7) ? 0 : 7;
	name = hd_strdup(base);
	n = strlen(name);
	if (n > 3 && !strcmp(name + n - 3, ".so"))
		name[n - 3] = 0;
	return name;
}

/* The entry of a file, judged when it is first asked for; again while it is refused, for it may
 * have been rebuilt. */
static struct hd_plugin_entry *entry_of(const char *path)
{
	struct known_plugin *k = NULL;

	for (size_t i = 0; i < nall && !k; i++)
		k = strcmp(all[i]->e.path, path) ? NULL : all[i];
	if (!k) {
		k = hd_alloc(sizeof(*k));
		k->e.path = hd_strdup(path);
		k->e.name = name_of(path);
		all = hd_grow(all, nall, &all_cap, sizeof(*all));
		all[nall++] = k;
	}
	if (!k->module)
		load(k);
	return &k->e;
}

/* The search: a build tree, then what is installed. It is plugins/ beside the executable (libtool's
 * real executables are in .libs/), or beside its directory where that is a configured tree.
 * Tests and tools are built one level down. */
static char *build_plugins(void)
{
	struct hd_err ignored = { 0 };
	char *exe = hd_this_program(&ignored), *slash, *dir = NULL, *mark;

	for (int up = 0; exe && up < 2 && !dir && (slash = strrchr(exe, '/')); up++) {
		*slash = 0;
		slash = strrchr(exe, '/');
		if (!up && slash && !strcmp(slash, "/.libs"))
			*slash = 0;
		dir = hd_format("%s/plugins", exe);
		mark = hd_format("%s/config.status", exe);
		if (access(dir, X_OK) || (up && access(mark, F_OK))) {
			free(dir);
			dir = NULL;
		}
		free(mark);
	}
	free(exe);
	return dir;
}

struct files {
	char **path;
	size_t n, cap;
};

static void add_file(const char *path, void *ctx)
{
	struct files *f = ctx;
	char *real = realpath(path, NULL);

	for (size_t i = 0; i < f->n && real; i++) {
		if (!strcmp(f->path[i], real)) {
			free(real);
			real = NULL;
		}
	}
	if (!real)
		return;
	f->path = hd_grow(f->path, f->n, &f->cap, sizeof(*f->path));
	f->path[f->n++] = real;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* DIR / NAME / .libs / NAME.so, as libtool leaves modules. */
static void add_built(const char *dir, struct files *f)
{
	struct files subs = { NULL, 0, 0 };
	struct dirent *d;
	DIR *list = opendir(dir);

	while (list && (d = readdir(list))) {
		if (d->d_name[0] == '.')
			continue;
		subs.path = hd_grow(subs.path, subs.n, &subs.cap, sizeof(*subs.path));
		subs.path[subs.n++] = hd_format("%s/%s/.libs", dir, d->d_name);
	}
	if (list)
		closedir(list);
	if (subs.n)
		qsort(subs.path, subs.n, sizeof(*subs.path), compare);
	for (size_t i = 0; i < subs.n; i++) {
		hd_loader_scan(subs.path[i], add_file, f);
		free(subs.path[i]);
	}
	free(subs.path);
}

static void release(struct files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->path[i]);
	free(f->path);
}

/* In the order of the search.  -> the places searched, for messages, malloc'ed. */
static char *search(struct files *f)
{
	char *built = build_plugins(), *installed = hd_installed_folder(HD_PLUGIN_DIR), *places;

	if (built)
		add_built(built, f);
	hd_loader_scan(installed, add_file, f);
	places = built ? hd_format("%s, %s", built, installed) : hd_strdup(installed);
	free(built);
	free(installed);
	return places;
}

static int no_such_name(const char *name, const struct files *f, const char *places, struct hd_err *err)
{
	const char *near, **all = hd_alloc((f->n + 1) * sizeof(*all));
	char *names = NULL;

	for (size_t i = 0; i < f->n; i++) {
		all[i] = name_of(f->path[i]);
		hd_append(&names, "%s%s", i ? ", " : "", all[i]);
	}
	near = hd_suggest_nearest(name, all, (int)f->n);
	hd_err_set(err, HD_EINVAL, "no plugin \"%s\" (%s.so or heddle_%s.so) in %s; there: %s%s%s%s", name, name, name,
		   places, names ? names : "none", near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	for (size_t i = 0; i < f->n; i++)
		free((char *)(uintptr_t)all[i]);
	free(all);
	free(names);
	return HD_EINVAL;
}

/* What a search of this process has found under that name, and what was accepted: it is not searched again. */
static struct known_plugin *found_before(const char *name)
{
	for (size_t i = 0; i < nall; i++)
		if (all[i]->by_name && all[i]->module && !strcmp(all[i]->e.name, name))
			return all[i];
	return NULL;
}

static char *path_of_name(const char *name, struct hd_err *err)
{
	struct files f = { NULL, 0, 0 };
	const struct known_plugin *known = found_before(name);
	char *places, *path = NULL;

	if (known)
		return hd_strdup(known->e.path);
	places = search(&f);
	for (size_t i = 0; i < f.n && !path; i++) {
		char *one = name_of(f.path[i]);

		path = strcmp(one, name) ? NULL : hd_strdup(f.path[i]);
		free(one);
	}
	if (!path)
		no_such_name(name, &f, places, err);
	release(&f);
	free(places);
	return path;
}

static char *path_of_path(const char *value, const char *dir, struct hd_err *err)
{
	char *joined = value[0] != '/' && dir && *dir ? hd_format("%s/%s", dir, value) : NULL;
	char *path = joined ? realpath(joined, NULL) : NULL;

	if (!path)
		path = realpath(value, NULL);
	if (!path && joined && strcmp(dir, "."))
		hd_err_set(err, HD_EINVAL, "no plugin file %s, nor %s: %s", joined, value, strerror(errno));
	else if (!path)
		hd_err_set(err, HD_EINVAL, "no plugin file %s: %s", value, strerror(errno));
	free(joined);
	return path;
}

static int is_path(const char *value)
{
	size_t n = strlen(value);

	return strchr(value, '/') || (n > 3 && !strcmp(value + n - 3, ".so"));
}

int hd_registry_find(const char *name_or_path, const char *relative_to_dir, struct hd_plugin_entry **out,
		     struct hd_err *err)
{
	struct hd_plugin_entry *e;
	int named = !is_path(name_or_path);
	char *path = named ? path_of_name(name_or_path, err) : path_of_path(name_or_path, relative_to_dir, err);

	if (!path)
		return HD_EINVAL;
	e = entry_of(path);
	((struct known_plugin *)e)->by_name |= named;
	free(path);
	if (e->why)
		return hd_err_set(err, HD_EABI, "plugin %s: %s", e->path, e->why);
	*out = e;
	return 0;
}

int hd_registry_scan(struct hd_plugin_entry ***out)
{
	struct files f = { NULL, 0, 0 };
	struct hd_plugin_entry **e;

	free(search(&f));
	e = hd_alloc(f.n * sizeof(struct hd_plugin_entry *));
	for (size_t i = 0; i < f.n; i++) {
		e[i] = entry_of(f.path[i]);
		e[i]->hidden = 0;
		for (size_t j = 0; j < i && !e[i]->hidden; j++)
			e[i]->hidden = !strcmp(e[j]->name, e[i]->name);
	}
	release(&f);
	*out = e;
	return (int)f.n;
}
