#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle run: which checkpoint it starts from, and what a signal leaves that comes before the ranks train.  Otherwise a
# run could continue from another run's weights without a message, or a batch script could believe that something is
# saved.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/until.sh"

sed -i 's/^steps = .*/steps = 100000\ndecay = 9/; s/^micro_batch = .*/micro_batch = 1/' tiny.ini
printf '[log]\nevery = 1000\n' >>tiny.ini
elastic() {			# STATUS NAME args...: the output is in out
	want=$1 what=$2
	shift 2
	HD_TEST_SECONDS=60 heddle run tiny.ini "$@" >out 2>&1
	is "$what: the status is $want" $? "$want"
}

ok "checkpoints are saved" heddle train tiny.ini --set checkpoint.dir=c --set checkpoint.every=1 --set train.steps=3
cp -r c n

# -- the checkpoint that it starts from
elastic 0 "resume = PATH" --ranks 1 --set checkpoint.dir=n --set checkpoint.resume=n/step-00000002 --set train.steps=4
like "... the run resumes from that path" "$(cat out)" '^heddle: resumed from n/step-00000002$'
like "... and a message names it" "$(cat out)" '^heddle: run: 1 rank, from n/step-00000002$'
elastic 1 "resume = no" --ranks 1 --set checkpoint.dir=n --set checkpoint.resume=no
like "... is refused as by train" "$(messages <out)" \
	'^heddle: --set checkpoint\.dir: n already contains step 4, but this run would begin at step 0; '
elastic 1 "resume = a path that does not exist" --ranks 1 --set checkpoint.dir=n --set checkpoint.resume=nowhere
like "... is refused too" "$(messages <out)" '^heddle: --set checkpoint\.resume: nowhere: no such directory'
elastic 1 "resume = a path outside of dir" --ranks 1 --set checkpoint.dir=n --set checkpoint.resume=c
like "... is refused as by train" "$(messages <out)" \
	'^heddle: --set checkpoint\.dir: n already contains step 4, which this run from c/step-00000003 would replace; give another dir'
elastic 0 "no resume" --ranks 1 --set checkpoint.dir=n --set train.steps=5
like "... the run resumes from the newest" "$(cat out)" '^heddle: resumed from n/step-00000004$'

# A restart reads what this run has saved, and not a later step of another run.
mkdir later && cp -r c/step-00000002 later && cp -r n/step-00000005 later/step-90000000 && echo step-90000000 >later/latest
begin() {			# args...: starts heddle run in the background; sets $job
	"$build/heddle" run tiny.ini "$@" </dev/null >out 2>&1 &
	job=$!
}
kill_rank() { kill -KILL "$(ps -o pid= --ppid "$(ps -o pid= --ppid $job | head -1 | tr -d ' ')" | tail -1 | tr -d ' ')"; }
saved() { [ "$(cat later/latest)" != step-90000000 ]; }
said() { grep -Eq -e "$1" out; }
begin --ranks 1:2 --set checkpoint.dir=later --set checkpoint.resume=later/step-00000002 --set checkpoint.every=5
until_true saved
tap_result $? "a run from a path saves in a directory with a later step"
kill_rank
until_true said '^heddle: resumed from later/step-[0-9]*[05]$'
tap_result $? "a rank is lost: the run continues from what it has saved"
is "... and not from the later step" "$(grep -c '^heddle: resumed from later/step-90000000' out)" 0
kill -TERM $job
wait $job
is "asked to end: the run saves and ends with status 0" $? 0

# -- how mpirun ended.  A replacement fails at once, and when it is started again all steps are done.
mkdir ours
mpirun_ends() {			# HOW: prints the messages of a run of 2 ranks
	rm -f ended
	printf '#!/bin/sh\n[ ! -e ended ] || exit 0\n: >ended\n%s\n' "$1" >ours/mpirun
	chmod +x ours/mpirun
	PATH=$tmp/ours:$PATH HD_TEST_SECONDS=60 heddle run tiny.ini --ranks 1:2 --set checkpoint.dir=empty >out 2>&1
	grep '^heddle: run: ' out | tr '\n' ' '
}
is "if mpirun itself is killed, no rank is lost" "$(mpirun_ends 'kill -KILL $$')" \
	'heddle: run: 2 ranks heddle: run: signal 9 ended mpirun, but no rank is lost: starting 2 again heddle: run: 2 ranks '
like "if mpirun fails, a rank is lost" "$(mpirun_ends 'exit 3')" \
	'^heddle: run: 2 ranks heddle: run: some of 2 ranks are lost; 1 is left \(kill -USR2 [0-9]+: 2 again\) heddle: run: 1 rank $'
mpirun_ends 'echo "$*" >given; exit 1' >/dev/null
is "mpirun is told not to bind" "$(grep -o 'bind-to [a-z]*' given)" "bind-to none"
printf '#!/bin/sh\necho "$*" >given\n' >ours/mpirun
PATH=$tmp/ours:$PATH HD_TEST_SECONDS=60 heddle run tiny.ini --ranks 2 --set checkpoint.dir=empty --mpirun "--bind-to core" >out 2>&1
is "... unless the user says how to bind" "$(grep -o 'bind-to [a-z]*' given)" "bind-to core"

# mpirun of Open MPI 5 ends with status 0 when it has lost a host.
printf 'a slots=1\nb slots=1\n' >hostfile
printf '#!/bin/sh\n[ "$1" = a ] || ! [ -e ended ]\n' >probe
chmod +x probe
printf '#!/bin/sh\n[ ! -e ended ] || exec "%s" train tiny.ini --set train.steps=1 --set checkpoint.dir=done\n: >ended\n' "$build/heddle" >ours/mpirun
rm -f ended
PATH=$tmp/ours:$PATH HD_TEST_SECONDS=60 heddle run tiny.ini --ranks 1:2 --hostfile hostfile --probe ./probe --set train.steps=1 \
	--set checkpoint.dir=done >out 2>&1
is "a host is lost, but mpirun reports nothing: the status is 0" $? 0
like "... after a run on the other host" \
	"$(grep '^heddle: run: ' out | tr '\n' ' ')" 'run: 2 ranks .*host b does not answer.*run: 1 rank $'

# -- a signal before the first step.  The probe sends it, while the run plans.
cat >probe <<'END'
#!/bin/sh
[ ! -e job ] || kill -TERM "$(cat job)"
END
chmod +x probe
echo 'localhost slots=2' >hostfile
planning() { timeout -k 5 60 sh -c 'echo $$ >job; exec "$0" run tiny.ini --ranks 1:2 --hostfile hostfile --probe ./probe "$@"' \
	"$build/heddle" "$@" </dev/null >out 2>&1; }
planning --set checkpoint.dir=empty
is "a signal while it plans: the status is 1" $? 1
is "... nothing is saved" "$(messages <out)" "heddle: run: asked to end before it had begun: nothing is saved"
planning --set checkpoint.dir=n
is "a signal while it plans, with a checkpoint: the status is 0" $? 0
is "... the message names the directory" "$(messages <out)" "heddle: run: asked to end; saved in n"
rm job

# mpirun ends with status 0 when the signal comes while it starts its daemon, which takes three seconds here.
printf '#!/bin/sh\nsleep 3\nshift\nexec sh -c "$*"\n' >agent
chmod +x agent
echo '127.0.0.2 slots=2' >hostfile
begin --ranks 2 --hostfile hostfile --probe ./probe --set checkpoint.dir=empty --mpirun "--mca plm_rsh_agent $tmp/agent"
until_true said '^heddle: run: 2 ranks'
sleep 0.5
kill -TERM $job
wait $job
is "a signal while mpirun starts: the status is 1" $? 1
like "... nothing is saved" "$(messages <out)" '^heddle: run: asked to end before it had begun: nothing is saved$'
done_testing
