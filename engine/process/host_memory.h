/* SPDX-License-Identifier: Apache-2.0
 * engine/process/host_memory.h - how much memory this process may still take before the system ends it.
 */
#ifndef HD_ENGINE_HOST_MEMORY_H
#define HD_ENGINE_HOST_MEMORY_H

struct hd_memory_room {
	double bytes;    /* INFINITY: nothing is known */
	const char *who; /* what sets it: "this host", "the control group of this process", ... */
};
/* The least of: what the host can give (swap included), what each control group above this process has left, and its limit
 * of address space.  root: "" for this system; tests name a directory with proc/ and sys/ of another. */
struct hd_memory_room hd_memory_left(const char *root);

#endif
