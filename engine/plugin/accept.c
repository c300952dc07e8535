/* SPDX-License-Identifier: Apache-2.0
 * Accepting or refusing a plugin.
 *
 * A plugin is checked by its data. Its entry is pure and returns const tables; no other code of the plugin runs before
 * all checks have passed. Its table is copied into a complete table of this engine, as far as the shorter of the two
 * reaches. So the engine calls the same slots of all plugins. The table of an older minor ends earlier, and that of a
 * newer one is longer. A refusal names the field and both values.
 */
#include <config.h>
#include "engine/plugin/accept.h"
#include "engine/base/parse.h"
#include "engine/plugin/loader.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An upper bound in bytes; a larger size cannot be that of a table. */
#define TABLE_MAX 4096
#define STR_(x) #x
#define STR(x) STR_(x)
#define ENTRY "heddle_plugin_v" STR(HD_ABI_MAJOR)

static const char *age(unsigned theirs, unsigned ours)
{
	return theirs > ours ? "newer" : "older";
}

/* Reports a missing entry. A file with the entry of another major is a plugin of another version, not an unrelated
 * file. */
static int no_entry(struct hd_module *m, const char *elsewhere, struct hd_plugin_entry *e, struct hd_err *err)
{
	char name[32];

	for (unsigned v = 0; v < 32; v++) {
		snprintf(name, sizeof(name), "heddle_plugin_v%u", v);
		if (v == HD_ABI_MAJOR || !hd_loader_symbol(m, name, NULL))
			continue;
		e->abi_major = (uint16_t)v;
		return hd_err_set(
			err, HD_EABI,
			"exports %s: abi_major is %u, %s than this engine's %d: rebuild it with this engine's headers",
			name, v, age(v, HD_ABI_MAJOR), HD_ABI_MAJOR);
	}
	if (elsewhere)
		return hd_err_set(err, HD_EABI, "has no %s of its own: the one found is in %s", ENTRY, elsewhere);
	return hd_err_set(err, HD_EABI, "exports no %s: it is not a heddle plugin", ENTRY);
}

/* Checks the major. Within it any minor fits: tables carry their sizes, and unknown parts must be unused. */
static int check_version(const struct hd_plugin *p, struct hd_err *err)
{
	if (p->abi_major != HD_ABI_MAJOR)
		return hd_err_set(err, HD_EABI, "abi_major is %u, %s than this engine's %d", p->abi_major,
				  age(p->abi_major, HD_ABI_MAJOR), HD_ABI_MAJOR);
	return 0;
}

/* Adds to a refusal that the plugin was built for a later minor, if it was. */
static int add_minor_note(const struct hd_plugin *p, struct hd_err *err)
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

/* The bytes of a table beyond this engine's must be 0, because this engine would never call such a slot. */
static int check_unknown_tail(const char *what, const void *table, size_t size, size_t ours, struct hd_err *err)
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
	return hd_err_set(err, HD_EABI, "%s is not terminated within its %zu bytes", field, room);
}

/* Checks build, "key=value ..." of further requirements. The only key is minor, the lowest minor with which the plugin
 * works. */
static int check_build(const struct hd_plugin *p, struct hd_err *err)
{
	const char *build = p->build + strspn(p->build, " ");
	long least;
	char *end;

	if (!*build)
		return 0;
	if (strncmp(build, "minor=", 6))
		return hd_err_set(err, HD_EABI, "build asks for %.*s, but this engine knows only minor",
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
	return o ? check_unknown_tail("optimizer", o, o->size, sizeof(*o), err) : 0;
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
	return check_unknown_tail(f->name, f, f->size, sizeof(*f), err);
}

static int check_families(const struct hd_family_ops *const *all, struct hd_err *err)
{
	for (size_t i = 0; all && all[i]; i++) {
		if (i == TABLE_MAX)
			return hd_err_set(err, HD_EABI, "families: the list has no terminator within %d entries",
					  TABLE_MAX);
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
	if (p->size > TABLE_MAX || !HD_HAS(p, strategy))
		return hd_err_set(err, HD_EABI, "size of its struct hd_plugin is %zu, this engine's has %zu", p->size,
				  sizeof(*p));
	if (!has_table(p))
		return hd_err_set(err, HD_EABI,
				  "has no table: neither strategy, kernels, optimizer nor families (size is %zu)",
				  p->size);
	return check_unknown_tail("plugin", p, p->size, sizeof(*p), err);
}

/* Checks that a text is one line, as messages, keys and heddle.ini(5) print it. */
static int check_line(const struct hd_option *k, const char *field, const char *text, struct hd_err *err)
{
	for (const char *p = text; p && *p; p++)
		if (iscntrl((unsigned char)*p))
			return hd_err_set(err, HD_EABI, "option %s: %s has byte %u, it must be one line", k->key, field,
					  (unsigned char)*p);
	return 0;
}

/* Reads one end of a range, a text of n bytes. Returns 1 if it is empty or a number as in an INI; a number is stored in
 * *at. */
static int is_range_end(const struct hd_option *k, const char *text, size_t n, double *at)
{
	char word[32];
	int64_t whole;

	if (n >= sizeof(word))
		return 0;
	snprintf(word, sizeof(word), "%.*s", (int)n, text);
	if (!n || (k->type == HD_OPT_NUM && !hd_word_num(word, at)))
		return 1;
	if (k->type == HD_OPT_NUM || (hd_word_int(word, &whole) && hd_word_bytes(word, &whole)))
		return 0;
	*at = (double)whole;
	return 1;
}

/* Checks a range. A malformed range would admit every number. A missing default is read as 0. */
static int check_range(const struct hd_option *k, struct hd_err *err)
{
	const char *dots = k->range ? strstr(k->range, "..") : NULL;
	double lo = -HUGE_VAL, hi = HUGE_VAL;

	if (!k->range || !*k->range || (k->type != HD_OPT_INT && k->type != HD_OPT_BYTES && k->type != HD_OPT_NUM))
		return 0;
	if (!dots || !is_range_end(k, k->range, (size_t)(dots - k->range), &lo) ||
	    !is_range_end(k, dots + 2, strlen(dots + 2), &hi))
		return hd_err_set(err, HD_EABI, "option %s: range is \"%s\", it must be \"LEAST..MOST\"", k->key,
				  k->range);
	if (lo > hi)
		return hd_err_set(err, HD_EABI, "option %s: range is \"%s\", which contains no number", k->key,
				  k->range);
	if (k->default_value && !*k->default_value && (lo > 0 || hi < 0))
		return hd_err_set(err, HD_EABI,
				  "option %s: default_value is \"\", which is 0, outside the range %s; NULL makes the "
				  "key mandatory",
				  k->key, k->range);
	return 0;
}

/* is_strategy: its section is [strategy], not [plugin]. */
static int check_option(const struct hd_option *k, size_t size, int is_strategy, struct hd_err *err)
{
	char what[100];

	if (k->key[strspn(k->key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
		return hd_err_set(err, HD_EABI, "option \"%s\": a key has letters, digits and _", k->key);
	if (!strcmp(k->key, "plugin") || !strcmp(k->key, "size"))
		return hd_err_set(err, HD_EABI, "option %s: this key is the engine's", k->key);
	if (!strcmp(k->key, "file") && !is_strategy)
		return hd_err_set(err, HD_EABI,
				  "option file: in [plugin], this key is the engine's and names the plugin's file");
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
	HD_TRY(check_range(k, err));
	snprintf(what, sizeof(what), "option %s", k->key);
	return check_unknown_tail(what, k, size, sizeof(*k), err);
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
		HD_TRY(check_option(k, o->option_size, o->mesh || o->rules || o->schedule, err));
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

/* Checks a text "key=value key=value", which must name at least one option, and only the plugin's own. */
static int check_keys(const char *field, const char *text, const struct hd_strategy_ops *o, struct hd_err *err)
{
	for (const char *at = text + strspn(text, " "); *at || at == text; at += strspn(at, " ")) {
		size_t n = strcspn(at, "= "), word = strcspn(at, " ");

		if (!n || at[n] != '=' || n + 1 == word)
			return hd_err_set(err, HD_EABI, "%s is \"%s\", it must be \"key=value ...\"", field, text);
		if (!has_option(o, at, n))
			return hd_err_set(err, HD_EABI, "%s is \"%s\", but the plugin has no option %.*s", field, text,
					  (int)n, at);
		at += word;
	}
	return 0;
}

/* Checks the serial table, which only an approximate plugin may have. It must have either `one` or `update`, not
 * both. */
static int check_serial(const struct hd_serial_ops *s, const struct known_plugin *k, struct hd_err *err)
{
	if (s->size > TABLE_MAX || !HD_HAS(s, update))
		return hd_err_set(err, HD_EABI, "serial: size is %zu, this engine's table has %zu", s->size,
				  sizeof(*s));
	HD_TRY(check_unknown_tail("serial", s, s->size, sizeof(*s), err));
	if (!k->e.approximate)
		return hd_err_set(err, HD_EABI,
				  "serial: the plugin is not approximate, so one rank trains the same model");
	if (!s->one == !s->update)
		return hd_err_set(err, HD_EABI, "serial: it has %s of one and update, but must have exactly one",
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
	HD_TRY(check_unknown_tail(k->name, k, k->size, sizeof(*k), err));
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
			return hd_err_set(err, HD_EABI, "kernels: the list has no terminator within %d entries",
					  TABLE_MAX);
		HD_TRY(check_kernel(all, i, err));
	}
	return 0;
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
	e->rewrites = !!t->rewrite;
	e->lowers = t->storage || t->lower;
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

	/* A table that ends within a slot would have half an address. */
	if (!n || n > TABLE_MAX || n % sizeof(void *))
		return hd_err_set(err, HD_EABI, "strategy: size is %zu, this engine's table has %zu", n, sizeof(t));
	HD_TRY(check_unknown_tail("strategy", theirs, n, sizeof(t), err));
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

int hd_plugin_accept(struct hd_module *m, struct known_plugin *k, struct hd_err *err)
{
	const struct hd_plugin *(*entry)(void);
	const struct hd_plugin *p;
	const char *elsewhere;
	void *at = hd_loader_symbol(m, ENTRY, &elsewhere);

	if (!at)
		return no_entry(m, elsewhere, &k->e, err);
	memcpy(&entry, &at, sizeof(entry)); /* C has no cast from an object pointer to a function pointer */
	p = entry();
	if (!p)
		return hd_err_set(err, HD_EABI, "%s returns NULL", ENTRY);
	return check_tables(p, k, err) ? add_minor_note(p, err) : 0;
}
