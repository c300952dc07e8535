/* SPDX-License-Identifier: Apache-2.0
 * engine/rates/rates.h - what heddle machine has measured of a machine that is at hand: rates of its kernels by size, of its
 * products by shape.  heddle plan prices by them what they know, and by [machine] what they do not.
 *
 * All rates are of one core while all cores compute.  A rank of t threads has t times as much, and does with each of them what
 * was measured on the same part of the work, but for what its threads read that another has written (`launch`).  Where a host
 * has more threads than cores they share these.
 */
#ifndef HD_ENGINE_RATES_H
#define HD_ENGINE_RATES_H
#include <stdint.h>
#include <stdio.h>
#include "engine/base/err.h"

enum { HD_RATE_FP32, HD_RATE_BF16, HD_RATE_TYPES };
enum { HD_PRODUCT_FORWARD, HD_PRODUCT_BACKWARD, HD_PRODUCT_WEIGHTS, HD_PRODUCT_KINDS };

struct hd_rate_point { /* of a kernel; or of a product */
	double at;     /* bytes that a launch reads and writes; where it has products, FLOPs for each of them */
	double rows, columns, summed; /* of a product: extents, on all threads */
	double rate;                  /* bytes a second; of what has products FLOP/s */
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
	int64_t hosts, ranks; /* that measured */
	int64_t threads;      /* of each */
	int quick;            /* few and small sizes were measured */
	double launch; /* seconds more that a launch takes by one rank with all cores; less than 0: not measured */
	double exchange; /* seconds in which a core hands a cache line to another, while `launch` was measured; likewise */
	double turn;     /* seconds more that a movement takes by each of the ranks that share a core; likewise */
	double step;     /* seconds of a step of a GPU in which the host begins it and waits for its end; likewise */
	struct hd_rate_points products[HD_PRODUCT_KINDS][HD_RATE_TYPES];
	struct hd_kernel_rates *kernels;
	size_t n, cap;
	struct hd_kernel_rates *movements; /* between ranks of a host, by kind; at: bytes that a rank sends; of[0] */
	size_t nmovements, cap_movements;
};

/* Of a machine's file (as hd_machine_read finds it).  *out NULL: it has none, and is no measured machine. */
int hd_rates_read(const char *name, struct hd_rates **out, struct hd_err *err);
void hd_rates_destroy(struct hd_rates *r);               /* NULL is allowed */
void hd_rates_print(const struct hd_rates *r, FILE *to); /* the sections that hd_rates_read reads */

struct hd_kernel_rates *hd_rates_kernel(struct hd_rates *r, const char *name);   /* made where there is none */
struct hd_kernel_rates *hd_rates_movement(struct hd_rates *r, const char *kind); /* likewise */
void hd_rates_add(struct hd_rate_points *p, struct hd_rate_point x);
/* Points that are near each other become one, and all are put in order. */
void hd_rates_settle(struct hd_rate_points *p);

/* falls.c: the steepest fall of a rate between sizes of which one is at most four times the other, as a factor.  Less than
 * four is no fall, and gives 0. */
double hd_rates_fall(const struct hd_rate_points *p, size_t *from, size_t *to);
/* One warning, of the worst fall among these and the rates of memory.  -> curves that fall so. */
int hd_rates_warn_of_falls(const struct hd_rates *r, const struct hd_rate_points *memory);

struct hd_rate_work { /* of a launch, by a rank of so many threads */
	const char *kernel;
	int product; /* of HD_PRODUCT_; -1: none */
	int bf16;
	double flops, bytes, rows, columns, summed;
	int64_t threads;
};
/* Seconds; 0: nothing is known of that kernel. */
double hd_rates_seconds(const struct hd_rates *r, const struct hd_rate_work *w);
/* Of a movement of that kind in which a rank sends so many bytes to others of its host; 0: not known. */
double hd_rates_moved(const struct hd_rates *r, const char *kind, double sent);

#endif
