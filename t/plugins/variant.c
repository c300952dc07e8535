/* SPDX-License-Identifier: Apache-2.0
 * A plugin that does nothing, and with -D all that a plugin can have wrong (t3000-loader.c builds
 * it so, one fault at a time).
 */
#include <heddle/strategy.h>

#ifndef V_NAME
#define V_NAME "variant"
#endif
#ifndef V_ENTRY
#define V_ENTRY heddle_plugin_v1
#endif
#ifndef V_MAGIC
#define V_MAGIC HD_MAGIC
#endif
#ifndef V_MAJOR
#define V_MAJOR HD_ABI_MAJOR
#endif
#ifndef V_MINOR
#define V_MINOR HD_ABI_MINOR
#endif
#ifndef V_BUILD
#define V_BUILD ""
#endif
#ifndef V_PLUGIN_SIZE
#define V_PLUGIN_SIZE sizeof(struct hd_plugin)
#endif
#ifndef V_TABLE
#define V_TABLE &table.known
#endif
#ifndef V_SIZE
#define V_SIZE sizeof(struct hd_strategy_ops)
#endif
#ifndef V_OPEN
#define V_OPEN variant_open
#endif
#ifndef V_MESH
#define V_MESH variant_mesh
#endif
#ifndef V_KEY
#define V_KEY "depth"
#endif
#ifndef V_ZERO
#define V_ZERO 0
#endif
#ifndef V_LATER
#define V_LATER NULL
#endif
#ifndef V_HELP
#define V_HELP "how deep"
#endif
#ifndef V_DEFAULT
#define V_DEFAULT "4"
#endif
#ifndef V_TYPE
#define V_TYPE HD_OPT_INT
#endif
#ifndef V_OPTIONS
#define V_OPTIONS options
#endif
#ifndef V_APPROXIMATE
#define V_APPROXIMATE NULL
#endif
#ifndef V_OPTION_SIZE
#define V_OPTION_SIZE sizeof(struct hd_option)
#endif

#ifndef V_CODE
#define V_CODE
#endif
#if defined(V_UNDEFINED_FUNCTION)
void nobody_has_this(void);
#endif
#if defined(V_UNDEFINED_DATA)
extern int nobody_has_this_number;
#endif

static __attribute__((unused)) const struct hd_option options[] = {
	{ V_KEY, V_TYPE, V_ZERO, V_DEFAULT, V_TYPE == HD_OPT_CHOICE ? NULL : "1..64", V_HELP },
	{ "order", HD_OPT_CHOICE, 0, NULL, "near|far|FILE", "which first" },
	{ "always", HD_OPT_BOOL, 0, "no", NULL, "even where it costs" },
};

static __attribute__((unused)) int variant_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	(void)p;
	(void)h;
	*self = NULL;
#if defined(V_UNDEFINED_FUNCTION)
	nobody_has_this();
#endif
#if defined(V_UNDEFINED_DATA)
	return nobody_has_this_number;
#endif
	return HD_OK;
}

static __attribute__((unused)) int variant_mesh(struct hd_strategy *self, struct hd_plan *p, int64_t size, int64_t left)
{
	(void)self;
	(void)p;
	(void)size;
	(void)left;
	return 7;
}

/* Tells whether the slot was taken from this table: 8 is what no stub returns. */
static __attribute__((unused)) int variant_lower(struct hd_strategy *self, struct hd_plan *p)
{
	(void)self;
	(void)p;
	return 8;
}

/* A table of a later minor: known slots first. */
struct later {
	struct hd_strategy_ops known;
	int (*invented_later)(void);
};

static __attribute__((unused)) int later_slot(void)
{
	return HD_OK;
}

static __attribute__((unused)) const struct later table = {
	.known =
		{
			.size = V_SIZE,
			.options = V_OPTIONS,
			.noptions = 3,
			.option_size = V_OPTION_SIZE,
			.open = V_OPEN,
			.mesh = V_MESH,
			.lower = variant_lower,
		},
	.invented_later = V_LATER,
};

#if !defined(V_NO_ENTRY)
__attribute__((visibility("default"))) const struct hd_plugin *V_ENTRY(void);

const struct hd_plugin *V_ENTRY(void)
{
	static const struct hd_plugin plugin = {
		.magic = V_MAGIC,
		.abi_major = V_MAJOR,
		.abi_minor = V_MINOR,
		.name = V_NAME,
		.version = "0.3",
		.build = V_BUILD,
		.size = V_PLUGIN_SIZE,
		.strategy = V_TABLE,
		.approximate = V_APPROXIMATE,
	};

	V_CODE;
#if defined(V_NULL)
	return plugin.size ? NULL : &plugin;
#endif
	return &plugin;
}
#endif
