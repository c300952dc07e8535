#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle run over hosts: a lost host costs its ranks and the steps since the last checkpoint.  Once it is back,
# SIGUSR2 brings its ranks back.  The losses are those of an undisturbed rank.  If this broke, a run of days would end
# with the first failed power supply.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/hosts.sh"
. "$src/t/lib/until.sh"
trap 'hosts_end; rm -rf "$tmp"; [ $tap_planned = yes ] || { echo "# ended early"; exit 1; }' EXIT

hosts_make 2
# SGD, since AdamW divides a gradient that consists of rounding errors by its own size.
sed 's/^steps.*/steps = 100000\nschedule = constant\noptimizer = sgd\nweight_decay = 0/; /^micro_batch/d' tiny.ini >layout.ini
printf '[log]\nmetrics = m.jsonl\nevery = 100\n[checkpoint]\ndir = out-run\nevery = 10\n' >>layout.ini
printf 'h1 slots=2\nh2 slots=2\n' >hostfile
# Replaces ssh: a running host refuses a connection to a port on which nobody listens.
cat >probe <<'END'
#!/bin/sh
timeout 5 bash -c ": </dev/tcp/$1/9" 2>&1 | grep -q refused
END
chmod +x probe
ok "the probe finds both hosts" on h1 sh -c './probe h1 && ./probe h2'

step() { tail -1 m.jsonl 2>/dev/null | sed 's/.*"step": \([0-9]*\),.*/\1/'; }
said() { [ "$(grep -c -e "$1" out)" -ge "$2" ]; }
at_step() { [ "$(step)" -ge "$1" ] 2>/dev/null; }
more_steps() { until_true at_step $(($(step) + $1)); }

touch m.jsonl
on h1 sh -c 'echo $$ >pid; exec "$@"' sh "$build/heddle" run layout.ini --ranks 2:4 --hostfile hostfile --probe ./probe \
	--set train.watchdog=$((3 * $(patience))) --mpirun "$hosts_mca" </dev/null >out 2>&1 &
job=$!
until_true at_step 20
tap_result $? "four ranks train on two hosts"
like "... in a layout of four" "$(cat out)" '^4 |: dp 4'
power_off h2
until_true said ': dp 2$' 1
tap_result $? "a host is lost: the other host's ranks continue"
like "... the lost host is named" "$(cat out)" '^heddle: run: host h2 does not answer'
like "... its ranks are counted" "$(cat out)" '^heddle: run: some of 4 ranks are lost; 2 are left'
is "... the run resumes from a checkpoint" "$(grep -c '^heddle: resumed from out-run/step-' out)" 1
more_steps 20
tap_result $? "... and make steps"
on h1 kill -USR2 "$(cat pid)"
until_true said ': dp 2$' 2
tap_result $? "a request for more ranks while the host is away: two continue"
more_steps 20
tap_result $? "... and make steps"
power_on h2
until_true on h1 ./probe h2
tap_result $? "the host answers again"
on h1 kill -USR2 "$(cat pid)"
until_true said ': dp 4$' 2
tap_result $? "a request for more ranks once it is back: four continue"
more_steps 20
tap_result $? "... and make steps"
on h1 kill -TERM "$(cat pid)"
wait $job
is "asked to end, the run ends with status 0" $? 0
like "... and one message says where it is saved" "$(tail -2 out)" 'asked to end after step [0-9]+; saved in out-run'
for h in h1 h2; do
	is "no process remains on $h" "$(on $h ps -eo stat,args | grep -v ^Z | grep -c '[h]eddle train')" 0
done

# The last line of each step counts, as in t6031.
last=$(step)
sed '/^\[strategy/,/^plugin/d; s/^metrics.*/metrics = one.jsonl/; /^\[checkpoint/,$d' layout.ini >one.ini
ok "one undisturbed rank trains" heddle train one.ini --set train.steps="$last"
numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
numbers m.jsonl | awk '{ line[$1] = $0; if ($1 > n) n = $1 } END { for (i = 1; i <= n; i++) print line[i] }' >elastic.txt
numbers one.jsonl >one.txt
is "no step is missing" "$(awk '{ print $1 }' elastic.txt | sort -un | wc -l)" "$last"
ok "losses are those of one rank" sh -c \
	'paste one.txt elastic.txt | awk "{ d = (\$2 - \$5) / \$2; d = d < 0 ? -d : d; if (!(d <= most)) most = d }
	END { print \"largest relative difference\", most, \"of\", NR; exit !NR || !(most <= 1e-5) }"'
note "$(cat .ok) steps; 4 -> 2 -> 2 -> 4 ranks"
done_testing
