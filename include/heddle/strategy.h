/* SPDX-License-Identifier: Apache-2.0
 * heddle/strategy.h - the one header that a strategy plugin includes; it includes all others.
 *
 * The engine calls the entry function when it loads a plugin, and accepts or refuses the plugin by the result. Then,
 * for each layout, it calls the slots of struct hd_strategy_ops in this order. Steps in brackets are the engine's.
 *
 *   open                  read the options, allocate memory
 *   mesh                  claim axes of the mesh; the model's dims and blocks are known from here on
 *   rewrite               change the logical graph before autodiff: replace nodes by ops of your own
 *   [autodiff]
 *   rules                 map dims to axes and blocks to stages
 *   schedule              order the units
 *   [each leaf lives where its first use needs it]
 *   storage               store parameters, gradients and optimizer states elsewhere
 *   [placement: inserts reshards]
 *   lower                 replace your own nodes, and the reshards along your axes, by other nodes
 *   [memory plan, then either the price or the program of a rank, for which op.record is called]
 *   close                 free what does not come from h->alloc
 *
 * Each slot is called for all instances, in the order of the INI, before the next slot begins.
 *
 * The rules decide how many replicas there are, and so determine the batch. To learn it, the engine first calls the
 * slots from open to rules for a provisional plan with another batch, forward only. It closes and drops that plan,
 * whose log appears only if it fails. In the final plan, dim batch and all shapes are final from open on. The rules
 * must lead to the same batch again.
 */
#ifndef HEDDLE_STRATEGY_H
#define HEDDLE_STRATEGY_H
#include <heddle/family.h>
#include <heddle/kernel.h>
#include <heddle/optimizer.h>
#include <heddle/serial.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { HD_OPT_INT, HD_OPT_BOOL, HD_OPT_BYTES, HD_OPT_NUM, HD_OPT_STR, HD_OPT_CHOICE };
struct hd_option { /* frozen; const data of the plugin */
	const char *key;
	uint32_t type, zero;
	const char *default_value; /* as written in an INI; NULL: the option is mandatory; "": 0 for a number */
	/* INT, BYTES, NUM: "0..64", "1..", or NULL for any value. CHOICE: "a|b|FILE", where FILE means that any other
	 * value names a file. */
	const char *range;
	const char *help; /* one line, printed by `heddle keys` */
};

struct hd_strategy_ops { /* a NULL slot does nothing, unless its comment says otherwise. All slots since 0.1 */
	size_t size;
	const struct hd_option *options;
	uint32_t noptions, option_size; /* option_size: sizeof(struct hd_option) of the plugin's build */
	/* Stores the instance's own data in *self, including h. Only options can be read at this point. If the slot is
	 * NULL, self is a struct hd_basic. */
	int (*open)(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self);
	void (*close)(struct hd_strategy *self); /* frees only what does not come from h->alloc */
	/* Claims the section's axes with h->axis. size is the number in the INI, or 0 for auto. For auto, left is the
	 * number of ranks that the other sections leave over; otherwise it equals size. If size is not 0, the product
	 * of all axes of the section must equal it, with or without the spare coordinates. If the slot is NULL, the
	 * engine claims one axis with as many members as the INI says. */
	int (*mesh)(struct hd_strategy *self, struct hd_plan *p, int64_t size, int64_t left);
	int (*rewrite)(struct hd_strategy *self, struct hd_plan *p);
	int (*rules)(struct hd_strategy *self, struct hd_plan *p);
	int (*storage)(struct hd_strategy *self, struct hd_plan *p);
	int (*lower)(struct hd_strategy *self, struct hd_plan *p);
	/* Appends the units of each stage with h->unit. At most one instance of a layout orders units. The engine
	 * proves that they cover the step and do not deadlock. */
	int (*schedule)(struct hd_strategy *self, struct hd_plan *p, int64_t micro_batches);
};

/* The self of all other slots if slot open is NULL. This is enough for a strategy that only has rules. */
struct hd_basic { /* view */
	size_t size;
	const struct hd_host *h;
	/* without slot mesh: the axis that the engine claimed, valid after that slot; else NULL */
	const struct hd_axis *axis;
};
static inline const struct hd_basic *hd_basic_of(const struct hd_strategy *self)
{
	return (const struct hd_basic *)(const void *)self;
}

#define HD_MAGIC 0x4844504cu
struct hd_plugin { /* the fields up to `size` are frozen; later minors append tables as pointers */
	uint32_t magic;
	uint16_t abi_major, abi_minor;
	char name[32]; /* equals the file name without heddle_, lib and .so */
	char version[16];
	/* "minor=N": engines of an older minor refuse the plugin; empty: any minor will do */
	char build[64];
	size_t size;                            /* sizeof(struct hd_plugin) */
	const struct hd_strategy_ops *strategy; /* NULL: the plugin has no slots */
	/* NULL: the plugin trains as one rank does, up to rounding. Otherwise the plugin is a different algorithm on
	 * purpose, and this text gives the options that make it exact, as "key=value key=value" ("every=1"). Since
	 * 0.3. */
	const char *approximate;
	const struct hd_kernel_ops *const *kernels;  /* NULL-terminated; NULL: none.  Since 0.4 */
	const struct hd_optimizer_ops *optimizer;    /* NULL: none.  Since 0.4 */
	const struct hd_family_ops *const *families; /* NULL-terminated; NULL: none.  Since 0.11 */
	/* what an approximate plugin computes instead; NULL: not stated. Since 1.1 */
	const struct hd_serial_ops *serial;
};

/* The only exported symbol. It is a pure function, and its name contains the ABI major. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct hd_plugin *
heddle_plugin_v1(void);

#define HD_PLUGIN(name_, version_, ops_) HD_PLUGIN_TABLES(name_, version_, .strategy = (ops_))
/* The same with further tables, such as HD_PLUGIN_TABLES("lazy", "1.0", .strategy = &ops, .approximate = "every=1"). */
#define HD_PLUGIN_TABLES(name_, version_, ...) \
	const struct hd_plugin *heddle_plugin_v1(void) \
	{ \
		static const struct hd_plugin plugin_ = { .magic = HD_MAGIC, \
							  .abi_major = HD_ABI_MAJOR, \
							  .abi_minor = HD_ABI_MINOR, \
							  .name = name_, \
							  .version = version_, \
							  .size = sizeof(plugin_), \
							  __VA_ARGS__ }; \
		return &plugin_; \
	}

#ifdef __cplusplus
}
#endif
#include <heddle/bucket.h>
#endif
