/* SPDX-License-Identifier: Apache-2.0
 * heddle/strategy.h - everything that a strategy plugin needs; include nothing else.
 *
 *   entry (pure) -> accepted or refused        then, per layout:
 *   open -> mesh          claim axes of the mesh; the model's dims and blocks are known
 *           rewrite       the logical graph before autodiff: ops of your own in place of nodes
 *           [autodiff]
 *           rules         dim -> axis, blocks -> stages
 *           schedule      the order of units
 *           [a leaf lives where its first use needs it]
 *           storage       parameters, gradients, optimizer state elsewhere
 *           [placement: reshards appear]
 *           lower         other nodes in place of your own nodes and of the reshards on your axes
 *           [memory plan; price, or the program of a rank: op.record] -> close
 * Each slot is called for all instances, in the order of the INI, before the next slot begins.
 *
 * The rules decide how many replicas there are, and so the batch.  To learn it, the engine first calls the slots
 * from open to rules for a plan of another batch, forward only.  It closes and drops that plan, which logs only if
 * it fails.  In the plan that it keeps, dim batch and all shapes are final from open on, and the rules must lead to
 * the same batch again.
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
	const char *default_value; /* default, as written in an INI; NULL: must be given */
	/* INT, BYTES, NUM: "0..64", "1..", NULL any.  CHOICE: "a|b|FILE" (FILE: any other value names a file). */
	const char *range;
	const char *help; /* one line */
};

struct hd_strategy_ops { /* a NULL slot does nothing, unless its comment says otherwise.  All slots since 0.1 */
	size_t size;
	const struct hd_option *options;
	uint32_t noptions, option_size; /* option_size: sizeof(struct hd_option) of the plugin's build */
	/* Keep h in *self.  Options can be read; nothing else exists yet.  NULL: self is a struct hd_basic. */
	int (*open)(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self);
	void (*close)(struct hd_strategy *self); /* frees only what does not come from h->alloc */
	/* size: as in the INI, 0 if auto; left: the ranks that the other sections leave over.  With a size, all axes of
	 * the section together have that many coordinates, with or without the spare ones.  NULL: the engine claims one
	 * axis, with as many members as the INI says. */
	int (*mesh)(struct hd_strategy *self, struct hd_plan *p, int64_t size, int64_t left);
	int (*rewrite)(struct hd_strategy *self, struct hd_plan *p);
	int (*rules)(struct hd_strategy *self, struct hd_plan *p);
	int (*storage)(struct hd_strategy *self, struct hd_plan *p);
	int (*lower)(struct hd_strategy *self, struct hd_plan *p);
	/* At most one instance of a layout orders units.  The engine proves that they cover the step and do not
	 * deadlock. */
	int (*schedule)(struct hd_strategy *self, struct hd_plan *p, int64_t micro_batches);
};

/* Without slot open, self is this struct in the other slots.  It is enough for a strategy of rules. */
struct hd_basic { /* view */
	size_t size;
	const struct hd_host *h;
	const struct hd_axis *axis; /* without slot mesh: the axis that the engine claimed, from then on; else NULL */
};
static inline const struct hd_basic *hd_basic_of(const struct hd_strategy *self)
{
	return (const struct hd_basic *)(const void *)self;
}

#define HD_MAGIC 0x4844504cu
struct hd_plugin { /* the fields up to `size` are frozen; later minors append tables as pointers */
	uint32_t magic;
	uint16_t abi_major, abi_minor;
	char name[32]; /* equals the file's name without heddle_, lib and .so */
	char version[16];
	char build[64];                         /* "minor=N": engines of an older minor refuse it; empty: none does */
	size_t size;                            /* of this struct */
	const struct hd_strategy_ops *strategy; /* NULL: no slot does anything */
	/* NULL: the plugin trains as one rank does, up to rounding.  Else it is another algorithm on purpose, and
	 * the text names the options with which it is exact, as "key=value key=value" ("every=1").  Since 0.3. */
	const char *approximate;
	const struct hd_kernel_ops *const *kernels;  /* NULL-terminated; NULL: none.  Since 0.4 */
	const struct hd_optimizer_ops *optimizer;    /* NULL: none.  Since 0.4 */
	const struct hd_family_ops *const *families; /* NULL-terminated; NULL: none.  Since 0.11 */
	const struct hd_serial_ops
		*serial; /* of what is approximate: what it computes instead; NULL: not said.  Since 1.1 */
};

/* The one exported symbol: pure; its name carries the major. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct hd_plugin *
heddle_plugin_v1(void);

#define HD_PLUGIN(name_, version_, ops_) HD_PLUGIN_TABLES(name_, version_, .strategy = (ops_))
/* With other tables: HD_PLUGIN_TABLES("lazy", "1.0", .strategy = &ops, .approximate = "every=1") */
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
