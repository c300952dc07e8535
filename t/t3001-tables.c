/* SPDX-License-Identifier: Apache-2.0
 * Sets each field of each plugin table to each wrong value, and checks the one-line message.  The tables are in this
 * file; the plugin t/plugins/given.c hands them over.  If one were accepted, the engine would read beyond tables or
 * train a different model.
 */
#include <config.h>
#include "engine/models/decoder/knobs.h"
#include "engine/models/model.h"
#include "engine/plugin/registry.h"
#include "t/lib/tap.h"
#include <heddle/family.h>
#include <heddle/kernel.h>
#include <heddle/optimizer.h>
#include <heddle/serial.h>
#include <unistd.h>

#define SO HD_TEST_BUILD "/t/plugins/.libs/given.so"

static int mesh(struct hd_strategy *self, struct hd_plan *p, int64_t size, int64_t left)
{
	(void)self, (void)p;
	return size < left ? HD_OK : HD_EINVAL;
}

static int update(struct hd_strategy *self, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	(void)self, (void)p, (void)u, (void)value;
	return HD_OK;
}

static int serial_update(const struct hd_serial *s)
{
	return s ? HD_OK : HD_EINVAL;
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

/* Correct tables; each check changes one field and restores it.  A table that claims to be larger has room after it. */
static struct hd_option option[2];
static union {
	struct hd_plugin v;
	char room[8192];
} plugin;
static union {
	struct hd_strategy_ops v;
	char room[8192];
} strategy;
static union {
	struct hd_kernel_ops v;
	char room[8192];
} kernel, other;
static union {
	struct hd_optimizer_ops v;
	char room[8192];
} optimizer;
static union {
	struct hd_family_ops v;
	char room[8192];
} family, second;
static union {
	struct hd_serial_ops v;
	char room[8192];
} serial;
static const struct hd_kernel_ops *kernels[5000];
static const struct hd_family_ops *families[5000];
static struct hd_kernel_ops many_kernels[5000];
static struct hd_family_ops many_families[5000];
static char word[5000][8];
static struct hd_family_key keys[1100];
static struct hd_family_value defaults[4];
static struct hd_family_name names[4];

static void right(void)
{
	static const char *const sizes[] = { "layers", "embed", "heads", "vocab", "max_seq" };

	memset(&plugin, 0, sizeof(plugin));
	memset(&strategy, 0, sizeof(strategy));
	memset(keys, 0, sizeof(keys));
	memset(defaults, 0, sizeof(defaults));
	memset(names, 0, sizeof(names));
	memset(kernels, 0, sizeof(kernels));
	memset(families, 0, sizeof(families));
	option[0] = (struct hd_option){ "depth", HD_OPT_INT, 0, "4", "1..64", "how deep" };
	option[1] = (struct hd_option){ "width", HD_OPT_INT, 0, "4", NULL, "how wide" };
	strategy.v = (struct hd_strategy_ops){ .size = sizeof(strategy.v),
					       .options = option,
					       .noptions = 2,
					       .option_size = sizeof(option[0]),
					       .mesh = mesh };
	kernel.v = (struct hd_kernel_ops){ sizeof(kernel.v), "k", "cpu", prepare, run, NULL };
	other.v = (struct hd_kernel_ops){ sizeof(other.v), "k", "ref", prepare, run, NULL };
	optimizer.v = (struct hd_optimizer_ops){ sizeof(optimizer.v), update };
	serial.v = (struct hd_serial_ops){ .size = sizeof(serial.v), .update = serial_update };
	for (size_t i = 0; i < HD_LEN(sizes); i++)
		keys[i].theirs = keys[i].ours = sizes[i];
	family.v = (struct hd_family_ops){
		.size = sizeof(family.v), .name = "one", .model_type = "one_type", .class_name = "One", .keys = keys
	};
	second.v = family.v;
	second.v.name = "two", second.v.model_type = "two_type";
	kernels[0] = &kernel.v, kernels[1] = &other.v;
	families[0] = &family.v, families[1] = &second.v;
	plugin.v = (struct hd_plugin){ .magic = HD_MAGIC,
				       .abi_major = HD_ABI_MAJOR,
				       .abi_minor = HD_ABI_MINOR,
				       .name = "given",
				       .version = "1",
				       .size = sizeof(plugin.v),
				       .strategy = &strategy.v,
				       .kernels = kernels,
				       .optimizer = &optimizer.v };
}

static void said(const struct hd_err *err, const char *want, const char *what)
{
	if (!ok(err->code < 0 && strstr(err->text, want), "%.90s", what))
		note("said: %s\n# want: %s", err->code ? err->text : "(accepted)", want);
}

static void refused(const char *want, const char *what)
{
	struct hd_err err = { 0 };
	struct hd_plugin_entry *e;

	hd_registry_find(SO, NULL, &e, &err);
	said(&err, want, what);
	right();
}

#define BAD(change, want) (right(), (void)(change), refused(want, #change))

/* -- tables that the loader refuses -------------------------------------------------------------------------------- */
static void test_plugin(void)
{
	BAD(plugin.v.size = 5000, "size of its struct hd_plugin is 5000, this engine's has ");
	BAD(plugin.v.size = 0, "size of its struct hd_plugin is 0, this engine's has ");
	BAD((plugin.v.strategy = NULL, plugin.v.kernels = NULL, plugin.v.optimizer = NULL), "has no table: neither");
	BAD((plugin.v.strategy = NULL, plugin.v.size = offsetof(struct hd_plugin, kernels)), "has no table: neither");
	BAD((plugin.v.strategy = NULL, plugin.v.kernels = NULL, plugin.v.size = offsetof(struct hd_plugin, optimizer)),
	    "has no table: neither");
	BAD((plugin.v.strategy = NULL, plugin.v.kernels = NULL, plugin.v.optimizer = NULL,
	     plugin.v.size = offsetof(struct hd_plugin, families)),
	    "has no table: neither");
	BAD((plugin.v.size = sizeof(plugin.v) + 8, plugin.room[sizeof(plugin.v) + 3] = 1), "plugin: the table has ");
	BAD(memset(plugin.v.version, 'v', 16), "version is not terminated within its 16 bytes");
	BAD(memset(plugin.v.build, 'b', 64), "build is not terminated within its 64 bytes");
	BAD(plugin.v.approximate = "depth 1", "approximate is \"depth 1\", it must be \"key=value ...\"");
	BAD(plugin.v.approximate = "deep=1", "approximate is \"deep=1\", but the plugin has no option deep");
	BAD(plugin.v.approximate = "=1", "approximate is \"=1\", it must be");
}

static void test_options(void)
{
	BAD(strategy.v.size = 0, "strategy: size is 0, this engine's table has ");
	BAD(strategy.v.noptions = 5000, "noptions is 5000, options is set");
	BAD(strategy.v.options = NULL, "noptions is 2, options is NULL");
	BAD(strategy.v.option_size = 8, "option_size is 8, this engine's is 40");
	BAD(strategy.v.option_size = 5000, "option_size is 5000, this engine's is 40");
	BAD(strategy.v.option_size = 44, "option_size is 44, this engine's is 40");
	BAD(option[1].key = NULL, "option 1 of 2 has no key");
	BAD(option[1].key = "", "option 1 of 2 has no key");
	BAD(option[1].key = "depth", "options 0 and 1 are both depth");
	BAD(option[1].key = "plugin", "option plugin: this key is the engine's");
	BAD(option[1].key = "size", "option size: this key is the engine's");
	BAD(option[0].range = "0-9", "option depth: range is \"0-9\", it must be \"LEAST..MOST\"");
	BAD(option[0].range = "a..9", "option depth: range is \"a..9\", it must be");
	BAD(option[0].range = "0...9", "option depth: range is \"0...9\", it must be");
	BAD(option[0].range = "0..00000000000000000000000000000009", "option depth: range is \"0..0");
	BAD(option[0].range = "9..0", "option depth: range is \"9..0\", which contains no number");
	BAD((option[0].type = HD_OPT_NUM, option[0].range = "0..1k"), "option depth: range is \"0..1k\", it must be");
	BAD(option[1].range = "1..\r2", "option width: range has byte 13, it must be one line");
}

static void test_kernels(void)
{
	BAD(kernel.v.size = 5000, "kernel 0: size is 5000, this engine's table has ");
	BAD(other.v.size = 8, "kernel 1: size is 8, this engine's table has ");
	BAD(kernel.v.name = NULL, "kernel 0: name is \"\", it must be one word");
	BAD(kernel.v.name = "", "kernel 0: name is \"\", it must be one word");
	BAD(kernel.v.name = "two words", "kernel 0: name is \"two words\", it must be one word");
	BAD(kernel.v.device = NULL, "kernel k: device is \"\", this engine knows cpu, cuda and ref");
	BAD(kernel.v.device = "tpu", "kernel k: device is \"tpu\", this engine knows cpu, cuda and ref");
	BAD(kernel.v.prepare = NULL, "kernel k of cpu: slot prepare is mandatory and missing");
	BAD(kernel.v.run = NULL, "kernel k of cpu: slot run is mandatory and missing");
	BAD(other.v.device = "cpu", "kernels 0 and 1 are both k of cpu");
	BAD((kernel.v.size = sizeof(kernel.v) + 8, kernel.room[sizeof(kernel.v)] = 1), "k: the table has ");
	right();
	for (int i = 0; i < 4999; i++) {
		snprintf(word[i], sizeof(word[i]), "k%d", i);
		many_kernels[i] = kernel.v, many_kernels[i].name = word[i];
		kernels[i] = &many_kernels[i];
	}
	refused("kernels: the list has no terminator within 4096 entries", "4999 kernels");
}

static void test_optimizer(void)
{
	BAD(optimizer.v.size = 5000, "optimizer: size is 5000, this engine's table has 16");
	BAD(optimizer.v.size = 8, "optimizer: size is 8, this engine's table has 16");
	BAD(optimizer.v.update = NULL, "optimizer: slot update is mandatory and missing (size is 16)");
	BAD((optimizer.v.size = 24, optimizer.room[16] = 1), "optimizer: the table has 24 bytes, this engine's has 16");
}

#define SERIAL(change) (plugin.v.serial = &serial.v, plugin.v.approximate = "depth=1", change)

static void test_serial(void)
{
	BAD(SERIAL(serial.v.size = 5000), "serial: size is 5000, this engine's table has 40");
	BAD(SERIAL(serial.v.size = 8), "serial: size is 8, this engine's table has 40");
	BAD(SERIAL(plugin.v.approximate = NULL),
	    "serial: the plugin is not approximate, so one rank trains the same model");
	BAD(SERIAL(serial.v.update = NULL), "serial: it has neither of one and update, but must have exactly one");
	BAD(SERIAL(serial.v.one = "depth=1"), "serial: it has both of one and update, but must have exactly one");
	BAD(SERIAL(serial.v.keys = "deep=1"), "serial.keys is \"deep=1\", but the plugin has no option deep");
	BAD(SERIAL((serial.v.update = NULL, serial.v.one = "deep=1")),
	    "serial.one is \"deep=1\", but the plugin has no");
}

static void test_family_tables(void)
{
	BAD((plugin.v.families = families, family.v.size = 5000), "family 0: size is 5000, this engine's table has ");
	BAD((plugin.v.families = families, second.v.size = 8), "family 1: size is 8, this engine's table has ");
	BAD((plugin.v.families = families, family.v.name = NULL), "family 0: name is \"\", it must be one word");
	BAD((plugin.v.families = families, family.v.name = ""), "family 0: name is \"\", it must be one word");
	BAD((plugin.v.families = families, family.v.name = "a b"), "family 0: name is \"a b\", it must be one word");
	BAD((plugin.v.families = families, second.v.name = "one"), "families 0 and 1 are both one");
	BAD((plugin.v.families = families, family.v.size = sizeof(family.v) + 8, family.room[sizeof(family.v)] = 1),
	    "one: the table has ");
	right();
	plugin.v.families = families;
	for (int i = 0; i < 4999; i++) {
		snprintf(word[i], sizeof(word[i]), "f%d", i);
		many_families[i] = family.v, many_families[i].name = word[i];
		families[i] = &many_families[i];
	}
	refused("families: the list has no terminator within 4096 entries", "4999 families");
}

/* -- families of an accepted plugin -------------------------------------------------------------------------------- */
static int load(const char *ini, struct hd_err *err)
{
	struct hd_conf *c = NULL;
	int rc = hd_conf_parse("f.ini", ini, NULL, 0, &c, err);

	rc = rc < 0 ? rc : hd_families_load(c, err);
	hd_conf_destroy(c);
	return rc;
}

static void wrong(const char *want, const char *what)
{
	struct hd_err err = { 0 };

	load("[strategy x]\nsize = 2\n[plugin g]\nfile = " SO "\n", &err);
	if (!strstr(err.text, "f.ini:4: [plugin g] file: plugin given, family one: "))
		note("said: %s", err.text);
	said(&err, want, what);
}

#define WRONG(change, want) (right(), (void)(change), wrong(want, #change))
#define LONG "1234567890123456789012345678901234567890"

static void test_values(void)
{
	WRONG((family.v.defaults = defaults, defaults[0].key = "nothing"),
	      "default nothing = : no adjustable key of [model]");
	WRONG((family.v.defaults = defaults, defaults[0].key = "norm"), "default norm has no value");
	WRONG((family.v.defaults = defaults, defaults[0] = (struct hd_family_value){ "layers", "4" }),
	      "default layers = 4: each model sets it itself");
	WRONG((family.v.defaults = defaults, defaults[0] = (struct hd_family_value){ "window_layers", "" }),
	      "default window_layers = : it must be letters w and f");
	WRONG((family.v.defaults = defaults, defaults[0] = (struct hd_family_value){ "norm", "after\n]" }),
	      "default norm = after?]: ");
	WRONG((family.v.defaults = defaults, defaults[0] = defaults[1] = (struct hd_family_value){ "norm", "after" }),
	      "default norm = after: it is already after");
}

#define KEY(...) \
	keys[5] = (struct hd_family_key) \
	{ \
		__VA_ARGS__ \
	}

static void test_keys(void)
{
	WRONG(keys[4].ours = "mlp", "keys: no key gives model.max_seq");
	WRONG(KEY("", "norm"), "keys: an entry's name is empty");
	WRONG(KEY("n", "nrom"), "key n: no adjustable key of [model] has the name nrom");
	WRONG(KEY("n", "norm", NULL, NULL, 8), "key n: flags are 0x8, this engine knows 0x1");
	WRONG(KEY("n", NULL, NULL, "yes"), "key n: absent \"yes\", but it is not a key of [model]");
	WRONG(KEY("n", "window", "a=b"), "key n: values \"a=b\", but model.window is not a choice");
	WRONG(KEY("n", "norm"), "key n: values are missing, but model.norm is a choice");
	WRONG(KEY("n", "norm", ""), "key n: values are missing, but model.norm is a choice");
	WRONG(KEY("n", "norm", "pre"), "key n: values \"pre\": it must be \"theirs=ours\"");
	WRONG(KEY("n", "norm", "pre=before|post"), "key n: values \"post\": it must be \"theirs=ours\"");
	WRONG(KEY("n", "norm", LONG "=before"), "it must be \"theirs=ours\"");
	WRONG(KEY("n", "norm", "pre=" LONG), "it must be \"theirs=ours\"");
	WRONG(KEY("n", "norm", "pre=behind"), "n norm = behind: ");
	WRONG(KEY("n", "window", NULL, "wide"), "absent window = wide: it must be a whole number in digits");
	right();
	for (int i = 5; i < 1099; i++)
		KEY("n", NULL, NULL, "-"), keys[i] = keys[5];
	wrong("keys: the list has no terminator within 1000 entries", "1099 keys");
}

#define NAME(...) (family.v.names = names, names[0] = (struct hd_family_name){ __VA_ARGS__ })
#define NORM "model.layers.*.input_layernorm"

static void test_weights(void)
{
	WRONG(NAME(NORM, NULL), "weight " NORM " has no name");
	WRONG(NAME(NORM, ""), "weight " NORM " has no name");
	WRONG(NAME("model.nothing", "x"), "weight model.nothing is x: the decoder has no weight model.nothing");
	WRONG(NAME(NORM, "x"), "weight " NORM " is x: it must have the same number of *, and at most 90 bytes");
	WRONG(NAME(NORM, "*" LONG LONG LONG), "it must have the same number of *, and at most 90 bytes");
	WRONG((NAME(NORM, "a.*"), names[1] = (struct hd_family_name){ NORM, "b.*" }),
	      "weight " NORM " is b.*, but it is already a.*");
	WRONG((NAME(NORM, "a.*"),
	       names[1] = (struct hd_family_name){ "model.layers.*.post_attention_layernorm", "a.*" }),
	      "weights " NORM " and model.layers.*.post_attention_layernorm are both a.*");
}

static void test_families(void)
{
	struct hd_err err = { 0 };
	struct hd_plugin_entry *e;

	right();
	plugin.v.families = families;
	families[1] = NULL;
	is_int(hd_registry_find(SO, NULL, &e, &err), HD_OK, "a plugin with families is accepted");
	WRONG(family.v.model_type = NULL, "model_type is missing");
	WRONG(family.v.model_type = "", "model_type is missing");
	WRONG(family.v.class_name = NULL, "class_name is missing");
	WRONG(family.v.class_name = "", "class_name is missing");
	WRONG(family.v.keys = NULL, "keys are missing");
	WRONG(family.v.model_type = "llama", "model_type llama already belongs to another family");
	WRONG(family.v.model_type = "heddle", "model_type heddle already belongs to another family");
	WRONG(family.v.window = 99, "window is 99, this engine knows 0..");
	WRONG(family.v.window_absent = -1, "window_absent is -1, it must be 0 or more");
	test_values();
	test_keys();
	test_weights();
	right();
	family.v.name = "llama";
	load("[plugin g]\nfile = " SO "\n", &err);
	said(&err, "plugin given, family llama: there is already a family llama",
	     "a family with a known name is refused");
}

/* Checks that accepted families exist: with experts as their defaults say, each key as written, and next to a second
 * plugin. */
static void test_brought(void)
{
	char folder[] = "/tmp/heddle-t3001.XXXXXX", text[1000];
	struct hd_err err = { 0 };
	const struct hd_family *f;

	right();
	family.v.defaults = defaults;
	defaults[0] = (struct hd_family_value){ "experts", "4" };
	defaults[1] = (struct hd_family_value){ "router", "sigmoid" };
	KEY("flag", NULL, NULL, "-"), keys[6] = (struct hd_family_key){ "n", "norm", "pre=before|post=after|", "!", 0 };
	keys[7] = (struct hd_family_key){ "w", "window", NULL, "-", HD_FAMILY_KEY_NULL };
	defaults[2].key = NULL;
	second.v.defaults = NULL;
	is_int(load("[plugin g]\nfile = " SO "\n", &err), HD_OK, "two families are accepted");
	f = hd_family_find("one");
	ok(f && f->experts == 4 && f->moe_every == 1 && f->router == HD_ROUTER_SIGMOID,
	   "... one has the experts of its defaults");
	f = hd_family_of_type("two_type");
	ok(f && !f->experts && f->moe_every == 2, "... the other has none");
	is_int(load("[plugin g]\nfile = " SO "\n", &err), HD_OK, "... loading the plugin again adds nothing");
	if (!mkdtemp(folder))
		return;
	snprintf(text, sizeof(text), "cp '%s' '%s/again.so'", SO, folder);
	ok(!system(text), "the plugin is copied");
	strcpy(plugin.v.name, "again");
	plugin.v.families = families;
	families[1] = NULL;
	family.v.name = "three", family.v.model_type = "three_type";
	defaults[0] = (struct hd_family_value){ "experts", "4" };
	defaults[1].key = NULL;
	snprintf(text, sizeof(text), "[plugin g]\nfile = " SO "\n[plugin h]\nfile = %s/again.so\n", folder);
	is_int(load(text, &err), HD_OK, "a second plugin with families is accepted");
	f = hd_family_find("three");
	ok(f && f->router == HD_ROUTER_TOPK, "... its experts use the default router");
	snprintf(text, sizeof(text), "rm -r '%s'", folder);
	ok(!system(text), "the copy is removed");
}

int main(void)
{
	char at[32];

	snprintf(at, sizeof(at), "%lx", (unsigned long)(uintptr_t)&plugin);
	setenv("HD_GIVEN", at, 1);
	test_plugin();
	test_options();
	test_kernels();
	test_optimizer();
	test_serial();
	test_family_tables();
	test_families();
	test_brought();
	return done();
}
