# SPDX-License-Identifier: Apache-2.0
# t/lib/hosts.sh - hosts out of namespaces, after tiny.sh: each has its own name, address, processes and shared memory, and a cable
# to a switch.
#
#	hosts_make N		h1 ... hN, or skips the test where that is not allowed
#	on HOST command...	as rsh does; mpirun uses it too
#	hosts_train NP LIST ARGS...	mpirun of `heddle train` from h1; LIST: "h1:2,h2:2"; at most $limit seconds
#	cable HOST down|up
#	power_off HOST		its cable first: nobody says goodbye

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
		wire ip link add "p$k" type veth peer name eth0 netns "$(cat "hosts/h$k")" ||
			skip_all "namespaces: no veth here"
		on "h$k" ip addr add "10.77.0.$k/24" dev eth0
		on "h$k" ip link set eth0 up
	done
	wire ip link add br0 type bridge || skip_all "namespaces: no bridge here"
	wire ip link set br0 up
	for k in $(seq "$hosts_n"); do
		wire ip link set "p$k" master br0 up
	done
	# shellcheck disable=SC2016
	printf '#!/bin/sh\nhost=$1\nshift\nprintf "%%s\\n" "$*" >"%s/hosts/$host.in"\n' "$tmp" >agent
	chmod +x agent
}

# Its first process takes commands, as a daemon of rsh would: a process cannot enter the processes of another host.  When it ends
# all of its host do.
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

on() {
	on_host=$1
	shift
	nsenter -t "$(cat "hosts/$on_host")" -a env -C "$tmp" TMPDIR=/dev/shm "$@"
}

wire() { nsenter -t "$(cat hosts/switch)" -n "$@"; }

hosts_end() {
	for k in switch $(seq "${hosts_n:-0}"); do
		[ "$k" = switch ] || k=h$k
		kill -9 "$(cat "hosts/$k" 2>/dev/null)" 2>/dev/null
	done
	# shellcheck disable=SC2086
	wait $hosts_all 2>/dev/null
}

hosts_train() {
	hosts_np=$1
	echo "$2" | tr ',' '\n' | sed 's/:/ slots=/' >hostfile
	shift 2
	on h1 timeout -k 5 "${limit:-60}" mpirun -np "$hosts_np" --hostfile hostfile --map-by slot --bind-to none \
		--mca plm_rsh_agent "$tmp/agent" --mca plm_rsh_no_tree_spawn 1 --mca pml ob1 --mca btl tcp,self,vader \
		--mca btl_vader_single_copy_mechanism none --mca btl_tcp_if_include 10.77.0.0/24 \
		--mca oob_tcp_if_include 10.77.0.0/24 --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 \
		--mca oob_tcp_keepalive_probes 2 -x OMP_NUM_THREADS -x XDG_CACHE_HOME -x OMPI_MCA_mpi_yield_when_idle \
		"$build/heddle" train "$@" </dev/null
}

cable() { wire ip link set "p${1#h}" "$2"; }
power_off() {
	cable "$1" down
	kill -9 "$(cat "hosts/$1")"
}
