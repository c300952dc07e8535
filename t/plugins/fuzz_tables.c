/* SPDX-License-Identifier: Apache-2.0
 * Tables of anything: t1113 loads this plugin with HD_FUZZ_SEED, which says what its entry returns. Of each field most seeds have
 * what is right, so that the next one is looked at too. Pointers are of this file or NULL: what an engine must read is there.
 */
#include "../lib/fuzz_args.h"
#include <stdlib.h>

static int fine(struct hd_strategy *self, struct hd_plan *p)
{
	(void)self, (void)p;
	return HD_OK;
}

static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);

	return b->axis ? hd_rule(b->h, p, "batch", b->axis, NULL, 0) : HD_OK;
}

static int update(struct hd_strategy *self, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	struct hd_tensor *ins[] = { u->param, u->gradient };

	(void)self;
	*value = u->h->graph->map(p, ins, 2, "a - b");
	return HD_OK;
}

static int prepare(struct hd_strategy *self, struct hd_kernel_prepare *a)
{
	(void)self, (void)a;
	return HD_OK;
}

static int run(const struct hd_kernel_run *a)
{
	(void)a;
	return HD_OK;
}

/* Each with room behind it for a table that claims to be larger. */
static struct args plugin_room, strategy_room, optimizer_room, kernel_room[3], option_room;

static void options(struct hd_strategy *s, struct hd_strategy_ops *o)
{
	static const char *const keys[] = { "depth", "width", "order", "every", "heads", "again" };
	size_t each = is_wild(s) ? sizeof(struct hd_option) + 8 * draw(s, 3) : sizeof(struct hd_option);

	o->options = is_wild(s) ? NULL : (const void *)&option_room;
	o->noptions = is_wild(s) ? (uint32_t)any_number(s) : (uint32_t)draw(s, 6);
	o->option_size = is_wild(s) ? (uint32_t)any_number(s) : (uint32_t)each;
	for (size_t i = 0; i < 6; i++) {
		struct hd_option *k = (void *)(option_room.byte + i * each);

		k->key = TEXT(s, keys[i]);
		if (is_wild(s))
			k->key = TEXT(s, "depth", "size", "plugin", "two words");
		k->type = (uint32_t)number(s, 6), k->zero = is_wild(s);
		k->default_value = TEXT(s, "1", "no", "a", "2.5", NULL, "16M");
		k->range = TEXT(s, "1..64", "a|b|FILE", NULL, "..", "9..1");
		k->help = TEXT(s, "what it is", "");
	}
	/* an array that is shorter than it says is read beyond its end, whatever an engine does */
	if (o->noptions > 6 && o->noptions <= 4096)
		o->noptions = 6;
	if (o->option_size > each && o->option_size <= 4096)
		o->option_size = (uint32_t)each;
}

static struct hd_strategy_ops *strategy(struct hd_strategy *s)
{
	struct hd_strategy_ops *o = sized(s, &strategy_room, sizeof(*o));

	if (!o)
		return NULL;
	options(s, o);
	o->rewrite = draw(s, 2) ? fine : NULL;
	o->rules = draw(s, 4) ? rules : NULL;
	o->storage = draw(s, 2) ? fine : NULL;
	o->lower = draw(s, 2) ? fine : NULL;
	return o;
}

static const struct hd_kernel_ops *const *kernels(struct hd_strategy *s)
{
	static const struct hd_kernel_ops *list[4];

	for (size_t i = 0; i < 3; i++) {
		struct hd_kernel_ops *k = sized(s, &kernel_room[i], sizeof(*k));

		list[i] = k;
		if (!k)
			break;
		k->name = TEXT(s, "one", "two", "three"), k->device = TEXT(s, "cpu", "cuda", "ref");
		k->prepare = is_wild(s) ? NULL : prepare, k->run = is_wild(s) ? NULL : run;
	}
	return list;
}

__attribute__((visibility("default"))) const struct hd_plugin *heddle_plugin_v1(void)
{
	const char *seed = getenv("HD_FUZZ_SEED");
	struct hd_strategy s = { .random = (seed ? strtoull(seed, NULL, 10) : 1) * 0x9e3779b97f4a7c15 + 1, .wild = 40 };
	struct hd_plugin *p = (void *)&plugin_room;
	struct hd_optimizer_ops *u = sized(&s, &optimizer_room, sizeof(*u));
	size_t size = sizeof(*p);

	if (u)
		u->update = is_wild(&s) ? NULL : update;
	for (size_t i = sizeof(*p); i < sizeof(plugin_room); i++)
		plugin_room.byte[i] = is_wild(&s) && is_wild(&s);
	if (is_wild(&s))
		size = draw(&s, 2) ? draw(&s, ARGS) : (size_t)any_number(&s);
	*p = (struct hd_plugin){ .magic = is_wild(&s) ? (uint32_t)any_number(&s) : HD_MAGIC,
				 .abi_major = HD_ABI_MAJOR,
				 .abi_minor = is_wild(&s) ? (uint16_t)any_number(&s) : HD_ABI_MINOR,
				 .name = "fuzz_tables",
				 .version = "1.0",
				 .size = size };
	if (is_wild(&s))
		memset(p->name, 'a', draw(&s, sizeof(p->name) + 1));
	if (is_wild(&s))
		memset(p->version, 'v', draw(&s, sizeof(p->version) + 1));
	if (is_wild(&s))
		memset(p->build, ' ', draw(&s, sizeof(p->build) + 1));
	p->strategy = strategy(&s);
	p->approximate = draw(&s, 3) ? NULL : TEXT(&s, "depth=1", "depth=1 every=2");
	p->kernels = draw(&s, 2) ? kernels(&s) : NULL;
	p->optimizer = draw(&s, 2) ? u : NULL;
	return is_wild(&s) ? NULL : p;
}
