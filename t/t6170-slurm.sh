#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The batch scripts of doc/cluster.md, under a Slurm of two nodes on this machine.  srun and mpirun must start the
# layout of the job's size.  SIGUSR1 must save and requeue the job, which then resumes.  Statuses must be what scripts
# expect.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/slurm.sh"
trap 'slurm_end; rm -rf "$tmp"; [ $tap_planned = yes ] || { echo "# ended early"; exit 1; }' EXIT
slurm_begin

block() { awk -v name="<!-- test: $1 -->" '$0 == name { on = 1; next } on && /^```/ { if (++fence == 2) exit; next } on' "$src/doc/cluster.md"; }
export PATH="$build:$PATH" XDG_CACHE_HOME OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMP_NUM_THREADS=1
# Open MPI takes two nodes of one name for one host with shared memory.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
sed 's/^steps.*/steps = 1000000\nschedule = constant/' tiny.ini >layout.ini
printf '[log]\nmetrics = m.jsonl\n' >>layout.ini
block srun.sbatch >srun.sbatch
line=$(block mpirun.line)
awk -v line="$line" '/^srun / { print line; next } { print }' srun.sbatch >mpirun.sbatch
is "the page has both scripts" \
	"$(grep -c '^srun\|^mpirun' srun.sbatch mpirun.sbatch | tr '\n' ' ')" "srun.sbatch:1 mpirun.sbatch:1 "
slurm_steps() { [ ! -f m.jsonl ] || wc -l <m.jsonl; }
wait_for_steps() {		# N: waits for more than N steps
	for i in $(seq 300); do
		[ "$(slurm_steps || echo 0)" -gt "$1" ] 2>/dev/null && return 0
		[ "$(slurm_state "$job")" != FAILED ] || break
		sleep 0.2
	done
	grep -v ^step $how.out
	return 1
}

for how in srun mpirun; do
	srun --mpi=list 2>&1 | grep -q pmix || { skip "Slurm has no pmix"; continue; }
	rm -rf out m.jsonl*
	job=$(sbatch --parsable --time=8 --output="$how.out" $how.sbatch | cut -d';' -f1)
	ok "$how: the job takes steps" wait_for_steps 5
	like "$how: the layout is the job's size" "$(grep -v ^step $how.out)" '4 ranks x 1 thread: dp 4'
	scancel --batch --signal=USR1 "$job"
	for i in $(seq 200); do
		[ "$(scontrol -o show job "$job" | sed 's/.*Restarts=\([0-9]*\).*/\1/')" = 0 ] || break
		sleep 0.1
	done
	like "$how: the job saves" "$(grep -v ^step $how.out)" 'asked to end after step [0-9]+; saved in out'
	is "$how: the job is requeued" "$(scontrol -o show job "$job" | sed 's/.*Restarts=\([0-9]*\).*/\1/')" 1
	first=$(cat out/latest)
	# A job that comes back waits for two minutes, unless it is told otherwise.
	for i in $(seq 100); do
		scontrol update JobId="$job" StartTime=now 2>/dev/null
		! grep -q resumed $how.out || break
		sleep 0.5
	done
	like "$how: the job resumes" "$(grep -v ^step $how.out)" "resumed from out/$first"
	scancel --full --signal=USR1 "$job" 2>/dev/null
	scancel "$job"
	ok "$how: the job is cancelled" slurm_wait "$job" CANCELLED
	is "$how: latest names a complete checkpoint" \
		"$([ -f "out/$(cat out/latest)/heddle/state.json" ] && echo yes)" yes
done

# Statuses: all steps are done, a layout is refused, or MPI is missing.
rm -rf out
run() { timeout 60 srun -N2 --ntasks-per-node=2 --mpi=pmix --cpu-bind=none "$build/heddle" train layout.ini "$@"; }
ok "srun of a few steps: status 0" run --set train.steps=3 --set checkpoint.dir=out
fails "srun of a layout that is refused: not 0" run --set dp.size=3
text=$(timeout 60 srun -N2 --ntasks-per-node=2 --mpi=none "$build/heddle" train layout.ini 2>&1)
ok "srun without MPI: not 0" [ $? -ne 0 ]
is "... and one message" "$(printf '%s\n' "$text" | messages | sed 's/\. Start.*//')" \
	"heddle: srun has started 4 tasks, but MPI connects none of them"
done_testing
