/* SPDX-License-Identifier: Apache-2.0
 * engine/process/host_limits.h - what the host and the control groups above this process leave to it.
 */
#ifndef HD_ENGINE_HOST_LIMITS_H
#define HD_ENGINE_HOST_LIMITS_H

struct hd_memory_room {
	double bytes;    /* INFINITY: nothing is known */
	const char *who; /* what sets it: "this host", "the control group of this process", ... */
};
/* The least of: what the host can give (swap included), what each control group above this process has left, and its limit
 * of address space.  root: "" for this system; tests name a directory with proc/ and sys/ of another. */
struct hd_memory_room hd_memory_left(const char *root);
/* The processor time that each control group above this process allows, in cores; the least, or INFINITY.  All processes of the group
 * share it: docker run --cpus, CPU limits of Kubernetes, CPUQuota of systemd. */
double hd_cores_allowed(const char *root);

#endif
