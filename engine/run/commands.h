/* SPDX-License-Identifier: Apache-2.0
 * engine/run/commands.h - a bound program: a flat list of commands with every address resolved.  What the files of this
 * folder share.
 */
#ifndef HD_ENGINE_RUN_COMMANDS_H
#define HD_ENGINE_RUN_COMMANDS_H
#include "engine/run/run.h"

enum { CMD_RUN, CMD_START, CMD_WAIT, CMD_LOAD, CMD_TRANSFER };

struct command {
	int32_t type, acc, micro;
	const struct hd_kernel *kernel;
	const struct hd_prep *prep;
	void **out, **in;
	const struct tensor *data;
	struct hd_communicator *members;
	struct hd_call call;
	int64_t request;
	struct hd_schedule_unit unit;
	const char *name;
	int64_t period; /* in steps that are multiples of it; 0: in all */
	const struct node *node;
	const struct launch *launch;
	const int32_t *rows;         /* numbers of the rows in use */
	int64_t nrows, rows_most;    /* how many numbers; their largest sum */
	struct row_numbers *numbers; /* CMD_START, of rows that are counted, where the device has their numbers */
	void *host; /* CMD_LOAD, CMD_START: where the host puts the data first; NULL: at once where it belongs */
	size_t bytes;
	int on_host; /* CMD_RUN: the kernel is the host's, and so is its memory, though the device has its own */
};

/* Where the device's memory is not the host's: what was received lies in `host` until it is waited for. */
struct unstage {
	void *device, *host;
	size_t bytes;
	const struct row_numbers *rows;
	int transfer; /* between the device's memory and the host's: nothing to do but to wait */
};

/* What a movement of counted rows asks the device first: have[0 ... n - 1] of what goes, need[0 ... n - 1] of what comes. */
struct row_numbers {
	const int32_t *device_have, *device_need;
	int32_t *have, *need;
	int64_t n, bytes;
};

struct recording {
	size_t from, to;
	void *kept;
}; /* commands; kept: NULL: they are run one by one */

struct joined {
	size_t from, to;
	void *state;
}; /* commands of one kernel that it runs as one */

static inline int hd_in_host(const struct hd_program *g)
{
	return hd_device_in_host(g->device);
}

/* -- run.c ------------------------------------------------------------------------------------------------------------------- */
int hd_run_command(struct hd_program *g, const struct command *c, struct hd_run *run, hd_fill_fn fill, void *ctx);
/* Of kernels; joined ones as one. */
int hd_run_commands(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx);

/* -- staging.c --------------------------------------------------------------------------------------------------------------- */
/* A call that is given the device's memory is to work on staging memory from `at` on.  -> where the next can begin */
char *hd_stage_call(struct hd_program *g, struct command *c, const struct node *n, char *at);
/* The numbers of a call's rows, which the device has, for whoever moves them.  at: or NULL: nothing else goes through staging
 * memory.  -> where the next can begin */
char *hd_stage_rows(struct hd_program *g, struct command *c, struct hd_rows *r, const struct node *n, int64_t numbers,
		    char *at);
int hd_stage_loads(struct hd_program *g, struct hd_err *err); /* host memory for what is loaded */
int hd_start_staged(struct hd_program *g, const struct command *c);
int hd_start_transfer(struct hd_program *g, const struct command *c);
int hd_wait_staged(struct hd_program *g, int64_t request);
int64_t hd_rows_used(const struct hd_program *g, const struct command *c);

#endif
