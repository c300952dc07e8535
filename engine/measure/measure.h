/* SPDX-License-Identifier: Apache-2.0
 * engine/measure/measure.h - heddle machine: measures this machine, and writes the file that heddle plan reads.
 *
 * All ranks measure at once, as they would compute in a run. So each gets its part of a busy machine.
 */
#ifndef HD_ENGINE_MEASURE_H
#define HD_ENGINE_MEASURE_H
#include "engine/command/command.h"
#include "engine/measure/launch_fit.h"
#include "engine/rates/rates.h"

struct hd_launches {   /* launches of the same programs, by each rank and then by one rank with all cores */
	int team;      /* threads of that rank, the team */
	int by_team;   /* one rank of each host computes now, else all */
	double *alone; /* seconds of each launch by a rank alone */
	size_t n, cap, at;
	struct hd_launch_fit fit; /* launches of the team; expected: what `alone` and the rates predict */
};
struct hd_measuring {
	struct hd_job *j;              /* world, device and threads are set */
	struct hd_rates *rates;        /* rates of this rank, for one core */
	double until;                  /* by hd_seconds: nothing more is begun after that */
	int quick;                     /* measures only few and small sizes */
	struct hd_rate_points *memory; /* kernels of a GPU that read and write all of their operands once, by bytes */
	double process_memory;         /* bytes of this process in addition to the plan: set by hd_measure_programs */
	/* Share of the speed of products that a GPU keeps after some seconds; 0: not measured. */
	double sustained;
	struct hd_launches *launches; /* if not NULL, launches are recorded here and give no rates */
};

struct hd_small_shape {
	const char *family;
	int layers, embed, heads, seq, batch, vocab;
	const char *more;           /* more lines of [model] */
	int separate_loss_gradient; /* logits are read twice, as with a sharded vocabulary */
};
/* shapes.c: the number of small models, model i, and whether one is run in fp32 as well as in bf16. */
int hd_small_count(const struct hd_measuring *m);
const struct hd_small_shape *hd_small_model(const struct hd_measuring *m, int i);
int hd_small_in_fp32(const struct hd_measuring *m, const struct hd_small_shape *s);
/* True for the one that takes the most power. */
int hd_small_is_hot(const struct hd_measuring *m, const struct hd_small_shape *s);

/* programs.c: Measures kernels and products in steps of small models. */
int hd_measure_programs(struct hd_measuring *m, struct hd_err *err);
/* team.c: Measures by how much longer a launch takes on one rank with all cores, and how far apart the cores are. Adds
 * both to the rates, which must be settled. */
int hd_measure_team(struct hd_measuring *m, struct hd_err *err);
/* shared_cores.c: Measures by how much longer a movement takes between ranks that share a core, and adds that
 * to the rates. */
int hd_measure_shared_cores(struct hd_measuring *m, struct hd_err *err);
/* programs.c: Records launches of small models in m->launches. */
int hd_measure_small(struct hd_measuring *m, struct hd_err *err);
/* links.c: Measures movements between ranks: those of one host into the rates, those between hosts into `network`. */
int hd_measure_links(struct hd_measuring *m, struct hd_rate_points *network, struct hd_err *err);
/* machine_file.c: Prints the machine file. memory: bytes of a kernel and bytes/s of this rank; network: bytes
 * sent and bytes/s. */
void hd_machine_print(const struct hd_measuring *m, const struct hd_rate_points *memory,
		      const struct hd_rate_points *network, FILE *to);

int hd_verb_machine(struct hd_cli *c);

#endif
