/* SPDX-License-Identifier: Apache-2.0
 * engine/process/host_limits.h - the memory and processor time that the host and its control groups
 * leave to this process.
 */
#ifndef HD_ENGINE_HOST_LIMITS_H
#define HD_ENGINE_HOST_LIMITS_H

struct hd_memory_room {
	double bytes;    /* INFINITY: unknown */
	const char *who; /* what sets the limit: "this host", "the control group of this process", ... */
};
/* Returns how much memory this process can still use. It is the minimum of what the host can give (swap included),
 * what its control groups have left, and what remains of its address space. root: "" for this system; tests name a
 * directory with the proc/ and sys/ of another one. */
struct hd_memory_room hd_memory_left(const char *root);
/* Returns the processor time, in cores, that the control groups above this process allow: the minimum over the groups,
 * or INFINITY. All processes of a group share it: docker run --cpus, CPU limits of Kubernetes, CPUQuota of systemd. */
double hd_cores_allowed(const char *root);

#endif
