/* SPDX-License-Identifier: Apache-2.0
 * engine/rates/rates.h - rates that heddle machine has measured: of kernels by size, of products by shape. heddle plan
 * prices by them whatever was measured, and by [machine] all else.
 *
 * All rates are those of one core while all cores compute. A rank of t threads has t times the rate, and each thread
 * does what was measured on the same part of the work. Only the results that its threads read of each other take
 * additional time (`launch`). If a host has more threads than cores, the threads share the cores.
 */
#ifndef HD_ENGINE_RATES_H
#define HD_ENGINE_RATES_H
#include <stdint.h>
#include <stdio.h>
#include "engine/base/err.h"

enum { HD_RATE_FP32, HD_RATE_BF16, HD_RATE_TYPES };
enum { HD_PRODUCT_FORWARD, HD_PRODUCT_BACKWARD, HD_PRODUCT_WEIGHTS, HD_PRODUCT_KINDS };

struct hd_rate_point { /* of a kernel; or of a product */
	double at;     /* bytes that a launch reads and writes; if it has products inside, FLOPs per such byte */
	double rows, columns, summed; /* of a product: extents, over all threads */
	double rate;                  /* bytes/s; of products, and of kernels with products inside, FLOP/s */
};
struct hd_rate_points {
	struct hd_rate_point *v;
	size_t n, cap;
};
struct hd_kernel_rates {
	char name[40];
	struct hd_rate_points of[HD_RATE_TYPES];
};
struct hd_rates {
	char processor[128], build[128], date[32], device[32];
	int64_t cores;        /* of a host; of a device: 1 */
	int64_t hosts, ranks; /* hosts and ranks that measured */
	int64_t threads;      /* threads of each of these ranks */
	int quick;            /* only few and small sizes were measured */
	double launch;        /* additional seconds of a launch on one rank with all cores; < 0: not measured */
	/* Seconds in which a core hands a cache line to another, at the time of `launch`; < 0: not measured. */
	double exchange;
	/* Additional seconds of a movement for each of the ranks that share a core; < 0: not measured. */
	double turn;
	/* Seconds of a GPU's step in which the host begins it and waits for its end; < 0: not measured. */
	double step;
	struct hd_rate_points products[HD_PRODUCT_KINDS][HD_RATE_TYPES];
	struct hd_kernel_rates *kernels;
	size_t n, cap;
	/* Between ranks of a host, by kind: of[0], whose `at` is the bytes that a rank sends. */
	struct hd_kernel_rates *movements;
	size_t nmovements, cap_movements;
};

/* Reads the rates of a machine file, which is found as by hd_machine_read. *out is NULL if it has none, because the
 * machine was not measured. */
int hd_rates_read(const char *name, struct hd_rates **out, struct hd_err *err);
void hd_rates_destroy(struct hd_rates *r);               /* NULL is allowed */
void hd_rates_print(const struct hd_rates *r, FILE *to); /* the sections that hd_rates_read reads */

struct hd_kernel_rates *hd_rates_kernel(struct hd_rates *r, const char *name);   /* created if there is none */
struct hd_kernel_rates *hd_rates_movement(struct hd_rates *r, const char *kind); /* created if there is none */
void hd_rates_add(struct hd_rate_points *p, struct hd_rate_point x);
/* Merges points that are near each other, and sorts them. */
void hd_rates_settle(struct hd_rate_points *p);

/* falls.c: Returns the steepest fall of the rate as a factor, between two sizes of which one is at most four times the
 * other. *from and *to are their indices. A factor of four or less is no fall, and gives 0. */
double hd_rates_fall(const struct hd_rate_points *p, size_t *from, size_t *to);
/* Prints one warning about the worst fall among these rates and those of memory. Returns the number of curves
 * with a fall. */
int hd_rates_warn_of_falls(const struct hd_rates *r, const struct hd_rate_points *memory);

struct hd_rate_work { /* a launch on a rank with so many threads */
	const char *kernel;
	int product; /* HD_PRODUCT_...; -1: no product */
	int bf16;
	double flops, bytes, rows, columns, summed;
	int64_t threads;
};
/* Returns seconds, or 0 if the kernel was not measured. */
double hd_rates_seconds(const struct hd_rates *r, const struct hd_rate_work *w);
/* Returns the seconds of a movement of that kind in which a rank sends so many bytes to others of its host. Returns 0
 * if it was not measured. */
double hd_rates_moved(const struct hd_rates *r, const char *kind, double sent);

#endif
