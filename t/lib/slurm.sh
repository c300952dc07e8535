# SPDX-License-Identifier: Apache-2.0
# t/lib/slurm.sh - a Slurm of two nodes on this machine, as the user root and without systemd, below $tmp/slurm; after tiny.sh.
#
#	slurm_begin		starts it, or skips the test
#	slurm_end		stops it
#	slurm_wait JOB STATE	waits until the job is in that state, at most 60 s

slurm_begin() {
	for tool in munged slurmctld slurmd srun sbatch scontrol; do
		command -v $tool >/dev/null || skip_all "Slurm: there is no $tool"
	done
	[ "$(id -u)" = 0 ] || skip_all "Slurm: its daemons need root"
	slurm=$tmp/slurm
	port=$((20000 + $$ % 20000))
	mkdir -p "$slurm/state" "$slurm/spool.n1" "$slurm/spool.n2" "$slurm/tmp.n1" "$slurm/tmp.n2" "$slurm/munge"
	chmod 755 "$tmp" "$slurm"
	head -c 128 /dev/urandom >"$slurm/munge/key"
	chmod 700 "$slurm/munge" && chmod 600 "$slurm/munge/key"
	cat >"$slurm/slurm.conf" <<-END
		ClusterName=test
		SlurmctldHost=$(hostname)(127.0.0.1)
		SlurmUser=root
		SlurmctldPort=$port
		AuthType=auth/munge
		AuthInfo=socket=$slurm/munge.socket
		CredType=cred/munge
		StateSaveLocation=$slurm/state
		SlurmdSpoolDir=$slurm/spool.%n
		SlurmctldPidFile=$slurm/ctld.pid
		SlurmdPidFile=$slurm/%n.pid
		SlurmctldLogFile=$slurm/ctld.log
		SlurmdLogFile=$slurm/%n.log
		TmpFS=$slurm/tmp.%n
		ProctrackType=proctrack/pgid
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SlurmdParameters=config_overrides
		SelectType=select/linear
		ReturnToService=2
		KillWait=30
		OverTimeLimit=1
		NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2 RealMemory=500 State=UNKNOWN
		NodeName=n2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2 RealMemory=500 State=UNKNOWN
		PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10 State=UP
	END
	export SLURM_CONF="$slurm/slurm.conf"
	munged --force --socket="$slurm/munge.socket" --key-file="$slurm/munge/key" --pid-file="$slurm/munge.pid" \
		--log-file="$slurm/munge.log" --seed-file="$slurm/munge/seed" >"$slurm/munge.out" 2>&1 ||
		skip_all "Slurm: munged does not start: $(tail -1 "$slurm/munge.out")"
	slurmctld -f "$SLURM_CONF" || skip_all "Slurm: slurmctld does not start"
	for node in n1 n2; do
		slurmd -N $node -f "$SLURM_CONF" || skip_all "Slurm: slurmd -N does not start"
	done
	for i in $(seq 200); do
		[ "$(sinfo -h -N -o %T 2>/dev/null | sort -u)" != idle ] || return 0
		sleep 0.1
	done
	skip_all "Slurm: its nodes are not idle: $(sinfo -h -N -o '%N %T %E' 2>&1 | tr '\n' ' ')"
}

slurm_end() {
	[ -n "$slurm" ] || return 0
	slurm_daemons=$(cat "$slurm"/*.pid 2>/dev/null)
	# shellcheck disable=SC2086
	kill $slurm_daemons 2>/dev/null
	for pid in $slurm_daemons; do	# slurmctld writes its state once more
		for i in $(seq 50); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
	done
}

slurm_state() { scontrol -o show job "$1" | sed 's/.*JobState=\([A-Z_]*\).*/\1/'; }
slurm_wait() {
	for i in $(seq 300); do
		[ "$(slurm_state "$1")" != "$2" ] || return 0
		sleep 0.2
	done
	scontrol -o show job "$1"
	return 1
}
