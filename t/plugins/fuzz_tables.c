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
static struct args plugin_room, strategy_room, optimizer_room, kernel_room[3], option_room, family_room[2], serial_room;

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

static const struct hd_family_key *keys(struct hd_strategy *s)
{
	static struct hd_family_key list[] = { HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
					       { "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
					       { NULL, NULL, NULL, NULL, 0 } };
	struct hd_family_key *k = &list[draw(s, sizeof(list) / sizeof(*list) - 1)];

	if (is_wild(s))
		k->theirs = TEXT(s, "hidden_size", "rope_theta", "two words");
	if (is_wild(s))
		k->ours = TEXT(s, NULL, "embed", "no_such_key", "family", "norm");
	if (is_wild(s))
		k->values = TEXT(s, NULL, "a|b", "a=b|c=d", "|", "=", "1|", "\"");
	if (is_wild(s))
		k->absent = TEXT(s, NULL, "!", "-", "no", "1e999");
	if (is_wild(s))
		k->flags = (uint64_t)any_number(s);
	return is_wild(s) ? NULL : list;
}

static const struct hd_family_ops *const *families(struct hd_strategy *s)
{
	static struct hd_family_value values[] = { { "norm_eps", "1e-6" }, { NULL, NULL } };
	static struct hd_family_name names[] = { { "model.norm", "model.last_norm" }, { NULL, NULL } };
	static const struct hd_family_ops *list[3];

	for (size_t i = 0; i < 2; i++) {
		struct hd_family_ops *f = sized(s, &family_room[i], sizeof(*f));

		list[i] = f;
		if (!f)
			break;
		f->name = is_wild(s) ? TEXT(s, "llama", "one", "") : i ? "two" : "one";
		f->model_type = is_wild(s) ? TEXT(s, "llama", "one") : f->name;
		f->class_name = TEXT(s, "OneForCausalLM"), f->keys = keys(s);
		f->defaults = draw(s, 2) ? values : NULL, f->names = draw(s, 2) ? names : NULL;
		f->window = (uint32_t)number(s, 5), f->window_every = is_wild(s) ? (uint32_t)any_number(s) : 0;
		f->window_absent = is_wild(s) ? any_number(s) : 0;
	}
	values[0].key = TEXT(s, "norm_eps", "embed", "nothing"), values[0].value = TEXT(s, "1e-6", "x");
	names[0].ours = TEXT(s, "model.norm", "model.layers.*.mlp.up_proj", "model.layers.*.self_attn.q_proj");
	names[0].theirs = TEXT(s, "model.last_norm", "a.*.b", "model.layers.*.qkv");
	return list;
}

static int serial_update(const struct hd_serial *x)
{
	return x->n > 0 ? HD_OK : HD_EINVAL;
}

static const struct hd_serial_ops *serial(struct hd_strategy *s)
{
	struct hd_serial_ops *o = sized(s, &serial_room, sizeof(*o));

	if (!o)
		return NULL;
	o->keys = TEXT(s, "depth=1", "depth=2", NULL), o->beside = TEXT(s, NULL, "pp size=2", "two words");
	o->one = TEXT(s, NULL, "depth=1"), o->update = draw(s, 4) ? serial_update : NULL;
	return o;
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
	p->families = draw(&s, 2) ? families(&s) : NULL;
	p->serial = draw(&s, 3) ? NULL : serial(&s);
	return is_wild(&s) ? NULL : p;
}
