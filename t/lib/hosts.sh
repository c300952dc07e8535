# SPDX-License-Identifier: Apache-2.0
# t/lib/hosts.sh - hosts made of namespaces, after tiny.sh: each has its own name, address, processes and shared memory,
# and a cable to a switch.
#
#	hosts_make N		makes h1 ... hN, or skips the test if that is not allowed
#	on HOST command...	runs it on the host, as rsh does; mpirun uses it too
#	hosts_train NP LIST ARGS...	mpirun of `heddle train` (or $hosts_verb) from h1; LIST: "h1:2,h2:2"; at most $limit seconds
#	$hosts_mca		the options that mpirun needs for these hosts
#	cable HOST down|up	unplugs or plugs in its cable
#	cable_rough HOST LOSS DELAY	its cable loses LOSS of 1000 packets at random and delays the others by DELAY ms
#	cable_counts HOST	prints the numbers of its packets and of the lost ones, and repairs the cable
#	power_off HOST		cuts its cable first, so that no process can take leave of the others
#	power_on HOST		starts a new host of the same name, without the processes from before the outage

hosts_make() {
	for tool in ip nsenter unshare; do
		command -v $tool >/dev/null || skip_all "namespaces: there is no $tool"
	done
	unshare -m -n -u -i -p --fork --mount-proc true 2>/dev/null || skip_all "namespaces are not allowed here"
	mkdir -p hosts
	hosts_n=$1
	for k in $(seq "$hosts_n"); do echo "10.77.0.$k h$k"; done >hosts/names
	host_begin switch
	for k in $(seq "$hosts_n"); do
		host_begin "h$k"
	done
	wire ip link add br0 type bridge || skip_all "namespaces: no bridge here"
	wire ip link set br0 up
	for k in $(seq "$hosts_n"); do
		host_wire "$k" || skip_all "namespaces: no veth here"
	done
	# shellcheck disable=SC2016
	printf '#!/bin/sh\nhost=$1\nshift\nprintf "%%s\\n" "$*" >"%s/hosts/$host.in"\n' "$tmp" >agent
	chmod +x agent
}

# The host's first process takes commands, as a daemon of rsh would, since a process cannot enter the process namespace
# of another host.  When it ends, all processes of its host end.
host_begin() {
	# shellcheck disable=SC2016
	TMPDIR=/dev/shm unshare -m -n -u -i -p --fork --mount-proc sh -c '
		hostname "$1"
		mount -t tmpfs none /dev/shm && mount --bind hosts/names /etc/hosts && ip link set lo up
		mkfifo "hosts/$1.in" && echo ready >"hosts/$1.ready"
		while :; do
			while read -r command; do sh -c "$command" & done <"hosts/$1.in"
		done' sh "$1" >"hosts/$1.log" 2>&1 </dev/null &
	hosts_outer=$!
	hosts_all="$hosts_all $hosts_outer"
	for i in $(seq 100); do
		[ ! -s "hosts/$1.ready" ] || break
		sleep 0.05
	done
	[ -s "hosts/$1.ready" ] || skip_all "namespaces: host $1 did not come up"
	ps -o pid= --ppid $hosts_outer | tr -d ' ' >"hosts/$1"
}

host_wire() {			# NUMBER: connects the host with the switch
	wire ip link add "p$1" type veth peer name eth0 netns "$(cat "hosts/h$1")" || return 1
	on "h$1" ip addr add "10.77.0.$1/24" dev eth0
	on "h$1" ip link set eth0 address "02:00:00:00:77:0$1" up	# the same after an outage: others still know it
	wire ip link set "p$1" master br0 up
}

on() {
	on_host=$1
	shift
	nsenter -t "$(cat "hosts/$on_host")" -a env -C "$tmp" TMPDIR=/dev/shm "$@"
}

wire() { nsenter -t "$(cat hosts/switch)" -n "$@"; }

hosts_end() {
	[ -z "$rough_relay" ] || kill "$rough_relay" 2>/dev/null
	for k in switch $(seq "${hosts_n:-0}"); do
		[ "$k" = switch ] || k=h$k
		kill -9 "$(cat "hosts/$k" 2>/dev/null)" 2>/dev/null
	done
	# shellcheck disable=SC2086
	wait $hosts_all 2>/dev/null
}

hosts_mca="--map-by slot --bind-to none --mca plm_rsh_agent $tmp/agent --mca plm_rsh_no_tree_spawn 1 --mca pml ob1
	--mca btl tcp,self,vader --mca btl_vader_single_copy_mechanism none --mca btl_tcp_if_include 10.77.0.0/24
	--mca oob_tcp_if_include 10.77.0.0/24 --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1
	--mca oob_tcp_keepalive_probes 2 -x OMP_NUM_THREADS -x XDG_CACHE_HOME -x OMPI_MCA_mpi_yield_when_idle"
hosts_mca=$(echo $hosts_mca)	# on one line

hosts_train() {
	hosts_np=$1
	echo "$2" | tr ',' '\n' | sed 's/:/ slots=/' >hostfile
	shift 2
	# shellcheck disable=SC2086
	on h1 timeout -k 5 "${limit:-60}" mpirun -np "$hosts_np" --hostfile hostfile $hosts_mca "$build/heddle" "${hosts_verb:-train}" "$@" </dev/null
}

cable() { wire ip link set "p${1#h}" "$2"; }
power_off() {
	cable "$1" down
	kill -9 "$(cat "hosts/$1")"
}
power_on() {
	wire ip link del "p${1#h}"	# else packets in flight when the host died would hold it for minutes
	rm -f "hosts/$1.in" "hosts/$1.ready"
	host_begin "$1"
	host_wire "${1#h}"
}

# A program in the switch carries the packets of the cable, since not every kernel has netem. No packet is larger than a
# frame.
cable_rough() {
	[ -x relay ] || ${CC:-cc} -O1 -DHD_RELAY -o relay "$src/t/lib/relay.c" || return 1
	rough_k=${1#h}
	for k in $(seq "$hosts_n"); do on "h$k" ip link set eth0 gso_max_segs 1; done
	wire ip link add "r$rough_k" type veth peer name "q$rough_k" || return 1
	wire ip link set "p$rough_k" nomaster
	wire ip link set "q$rough_k" master br0 up
	wire ip link set "r$rough_k" up
	nsenter -t "$(cat hosts/switch)" -n ./relay "p$rough_k" "r$rough_k" "$2" "$3" >"hosts/$1.counts" &
	rough_relay=$!
}
cable_counts() {
	kill -TERM $rough_relay
	wait $rough_relay
	rough_relay=
	wire ip link del "r${1#h}"
	wire ip link set "p${1#h}" master br0
	cat "hosts/$1.counts"
}
