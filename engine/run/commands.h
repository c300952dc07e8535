/* SPDX-License-Identifier: Apache-2.0
 * engine/run/commands.h - a bound program: a flat list of commands with every address resolved. The files of this
 * folder share it.
 */
#ifndef HD_ENGINE_RUN_COMMANDS_H
#define HD_ENGINE_RUN_COMMANDS_H
#include "engine/run/run.h"

enum { CMD_RUN, CMD_START, CMD_WAIT, CMD_LOAD, CMD_TRANSFER };

struct command {
	int32_t type, acc, micro; /* micro: of a wait, that of its call */
	const struct hd_kernel *kernel;
	const struct hd_prep *prep;
	void **out, **in;
	const struct tensor *data;
	struct hd_communicator *members;
	struct hd_call call;
	int64_t request;
	struct hd_schedule_unit unit;
	const char *name;
	int gathers;    /* in unit G, or a wait for a call of it */
	int64_t period; /* runs in steps that are multiples of it; 0: in all */
	const struct node *node;
	const struct launch *launch;
	const int32_t *rows;       /* counts of rows in use; their sum is how many rows the kernel computes */
	int64_t nrows, rows_most;  /* how many counts; their largest possible sum */
	struct row_counts *counts; /* CMD_START of a movement of counted rows, if the counts are in device memory */
	void *host;                /* CMD_LOAD, CMD_START: host memory to go through; NULL: none is needed */
	size_t bytes;
	int on_host; /* CMD_RUN: the host's kernel computes in host memory, although the device has its own */
};

/* If device memory is not host memory: received data is in `host` until the request is waited for. */
struct staged_result {
	void *device, *host;
	size_t bytes;
	const struct row_counts *rows;
	int transfer; /* a copy between device and host memory: the wait only waits */
};

/* The counts that a movement of counted rows reads from the device first. have[0 ... n - 1] count
 * what is sent, need[0 ... n - 1] what is received. */
struct row_counts {
	const int32_t *device_have, *device_need;
	int32_t *have, *need;
	int64_t n, bytes;
};

struct recording { /* range of commands */
	size_t from, to;
	int64_t runs; /* how often they have run */
	void *replay; /* the device's recording; NULL: run them one by one */
};

struct joined {
	size_t from, to;
	void *state;
}; /* range of commands that their kernel runs as one */

static inline int hd_in_host(const struct hd_program *g)
{
	return hd_device_in_host(g->device);
}

/* -- run.c ------------------------------------------------------------------------------------------------------- */
int hd_run_command(struct hd_program *g, const struct command *c, struct hd_run *run, hd_fill_fn fill, void *ctx);
/* Runs the commands from ... to - 1; joined ones run as one. */
int hd_run_commands(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx);

/* -- staging.c --------------------------------------------------------------------------------------------------- */
/* Makes a call on device memory use staging memory from `at` on. Returns where the next call's begins. */
char *hd_stage_call(struct hd_program *g, struct command *c, const struct node *n, char *at);
/* Lets the host read the row counts of a call, which are in device memory. at: NULL if nothing else goes through
 * staging memory. Returns where the next staging memory begins, or NULL. */
char *hd_stage_rows(struct hd_program *g, struct command *c, struct hd_rows *r, const struct node *n, int64_t ncounts,
		    char *at);
int hd_stage_loads(struct hd_program *g, struct hd_err *err); /* gives the loads host memory */
int hd_start_staged(struct hd_program *g, const struct command *c);
int hd_start_transfer(struct hd_program *g, const struct command *c);
int hd_wait_staged(struct hd_program *g, int64_t request);
int64_t hd_rows_used(const struct hd_program *g, const struct command *c);

#endif
