/* SPDX-License-Identifier: Apache-2.0
 * A bad cable.  Built as a program by hosts.sh and run in its switch:
 *
 *	relay A B LOSS DELAY	carries packets between the interfaces A and B; it loses LOSS of 1000 at random, and
 *				delivers the others DELAY ms later, in order
 *
 * On SIGTERM it prints the numbers of received and lost packets.  Packets keep the sender's offload header
 * (virtio_net_hdr), so checksums that nobody has computed yet stay marked as such.
 */
#ifdef HD_RELAY
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LONGEST 70000
#define ROOM 4096 /* packets on the way; a power of two */

struct packet {
	double due;
	ssize_t n;
	char *bytes;
};
struct direction {
	int from, to;
	struct packet queue[ROOM];
	size_t first, end;
};

static volatile sig_atomic_t ended;
static long seen, lost, loss;
static double delay;

static void end(int sig)
{
	(void)sig;
	ended = 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_interface(const char *name)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0), yes = 1, large = 8 << 20;

	at.sll_ifindex = (int)if_nametoindex(name);
	if (fd < 0 || !at.sll_ifindex || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof(yes)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at))) {
		perror(name);
		exit(1);
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof(large));
	return fd;
}

static int is_lost(void)
{
	static unsigned long long x = 1;

	x = x * 6364136223846793005ull + 1442695040888963407ull;
	return (long)((x >> 33) % 1000) < loss;
}

static void take(struct direction *d)
{
	char bytes[LONGEST];
	ssize_t n;

	while (d->end - d->first < ROOM && (n = recv(d->from, bytes, sizeof(bytes), 0)) > 0) {
		struct packet *p = &d->queue[d->end % ROOM];

		seen++;
		if (is_lost()) {
			lost++;
			continue;
		}
		*p = (struct packet){ now() + delay, n, malloc((size_t)n) };
		memcpy(p->bytes, bytes, (size_t)n);
		d->end++;
	}
}

/* Sends the packets that are due.  Returns the seconds until the next one, or a negative number if there is none. */
static double give(struct direction *d)
{
	for (; d->first < d->end; d->first++) {
		struct packet *p = &d->queue[d->first % ROOM];
		double left = p->due - now();

		if (left > 0)
			return left;
		if (send(d->to, p->bytes, (size_t)p->n, 0) < 0)
			lost++;
		free(p->bytes);
	}
	return -1;
}

int main(int argc, char **argv)
{
	static struct direction d[2];

	if (argc != 5)
		return 2;
	d[0].from = d[1].to = open_interface(argv[1]);
	d[1].from = d[0].to = open_interface(argv[2]);
	loss = atol(argv[3]);
	delay = atof(argv[4]) / 1e3;
	signal(SIGTERM, end);
	while (!ended) {
		struct pollfd f[2] = { { d[0].from, POLLIN, 0 }, { d[1].from, POLLIN, 0 } };
		struct timespec wait = { 0, 100000000 };

		for (int i = 0; i < 2; i++) {
			double left = give(&d[i]);

			if (left >= 0 && left * 1e9 < (double)wait.tv_nsec)
				wait.tv_nsec = (long)(left * 1e9) + 1000;
		}
		if (ppoll(f, 2, &wait, NULL) > 0)
			for (int i = 0; i < 2; i++)
				take(&d[i]);
	}
	printf("%ld %ld\n", seen, lost);
	return 0;
}
#endif
typedef int hd_relay_is_a_program; /* not in the library of the tests */
