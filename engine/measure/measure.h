/* SPDX-License-Identifier: Apache-2.0
 * engine/measure/measure.h - heddle machine: measures this machine, and writes the file that heddle plan reads.
 *
 * All ranks measure at once, as they would compute in a run: what each gets is its part of a busy machine.
 */
#ifndef HD_ENGINE_MEASURE_H
#define HD_ENGINE_MEASURE_H
#include "engine/command/command.h"
#include "engine/rates/rates.h"

struct hd_launches {   /* of the same programs by each rank, then by a rank with all cores */
	int team;      /* its threads */
	int by_team;   /* one rank of each host computes now, else all */
	double *alone; /* seconds of each by a rank alone */
	size_t n, cap, at;
	double more; /* seconds that those of the team took longer than their part of these, together */
	int counted;
};
struct hd_measuring {
	struct hd_job *j;              /* world, device and threads are set */
	struct hd_rates *rates;        /* of this rank; of one core */
	double until;                  /* hd_seconds: nothing more is begun then */
	int quick;                     /* few and small sizes */
	struct hd_rate_points *memory; /* of kernels of a GPU that read and write all of their operands once: bytes */
	double process_memory;         /* bytes of this process besides what is planned: set by hd_measure_programs */
	double sustained;              /* share of the speed of products that a GPU keeps; 0: not measured */
	struct hd_launches *launches;  /* are compared, and give no rates; else NULL */
};

struct hd_small_shape {
	const char *family;
	int layers, embed, heads, seq, batch, vocab;
	const char *more; /* lines of [model] */
	int loss_apart;   /* logits are read twice, as where a vocabulary is cut */
};
/* shapes.c: how many to measure by, each of them, and whether this one is run in fp32, besides bf16. */
int hd_small_count(const struct hd_measuring *m);
const struct hd_small_shape *hd_small_model(const struct hd_measuring *m, int i);
int hd_small_in_fp32(const struct hd_measuring *m, const struct hd_small_shape *s);
int hd_small_is_hot(const struct hd_measuring *m, const struct hd_small_shape *s); /* one, which takes the most power */

/* programs.c: kernels and products in steps of small models. */
int hd_measure_programs(struct hd_measuring *m, struct hd_err *err);
/* team.c: what a launch takes longer by one rank with all cores, and how far the cores were, into the rates, which are settled. */
int hd_measure_team(struct hd_measuring *m, struct hd_err *err);
/* shared_cores.c: what a movement takes longer by ranks that share a core, into the rates. */
int hd_measure_shared_cores(struct hd_measuring *m, struct hd_err *err);
/* programs.c: launches of small models into m->launches. */
int hd_measure_small(struct hd_measuring *m, struct hd_err *err);
/* links.c: movements between ranks.  Of one host into the rates; between hosts into `network`. */
int hd_measure_links(struct hd_measuring *m, struct hd_rate_points *network, struct hd_err *err);
/* machine_file.c: memory: bytes of a kernel and bytes/s of this rank; network: bytes sent and bytes/s. */
void hd_machine_print(const struct hd_measuring *m, const struct hd_rate_points *memory,
		      const struct hd_rate_points *network, FILE *to);

int hd_verb_machine(struct hd_cli *c);

#endif
