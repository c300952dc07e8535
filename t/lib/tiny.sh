# SPDX-License-Identifier: Apache-2.0
# t/lib/tiny.sh - a model that trains in a second, for tests that run the program itself.  After tap.sh:
#
#	heddle args...		runs the built program
#	heddle_mpi N args...	runs it on N ranks
#	$tmp/tiny.ini		trains a model of 35 thousand parameters on text, with one axis of replicas (dp)
#	$tmp/text.txt		20 thousand bytes of words
#	messages < OUTPUT	prints the program's messages: without mpirun's banners, progress and notes at the start
#	no PATTERN args...	checks that the program refuses, with one message, which matches
#	json TEXT KEY		prints a number of one line of JSON
#
# Tests run in $tmp, which also has the cache of timings.

[ -x "$build/heddle" ] || skip_all "heddle is not built"
cd "$tmp" || exit 1
export XDG_CACHE_HOME="$tmp/cache"
unset OMP_WAIT_POLICY HD_TEST_COMM HD_TEST_COMM_DELAY_US HD_TEST_COMM_PIECE

awk 'BEGIN {
	n = split("and god said let there be light the waters under heaven were gathered together unto one place", w)
	for (x = 1; i < 4000; i++) {
		x = (x * 16807) % 2147483647
		printf "%s%s", w[x % n + 1], i % 12 == 11 ? "\n" : " "
	}
}' >text.txt
cat >tiny.ini <<'END'
[model]
family = gpt2
layers = 2
embed = 32
heads = 4

[data]
train = text.txt

[train]
seq = 32
global_batch = 8
micro_batch = 2
steps = 3
lr = 3e-3
eval_batches = 1
threads = 1

[strategy dp]
plugin = dp
END

heddle() { timeout -k 5 "${HD_TEST_SECONDS:-180}" "$build/heddle" "$@" </dev/null; }
heddle_mpi() {
	tiny_n=$1
	shift
	HD_TEST_SECONDS=${HD_TEST_SECONDS:-180} mpi "$tiny_n" "$build/heddle" "$@"
}
# Open MPI 5 prints a zero byte after its banner of an abort.
messages() { tr -d '\0' | grep -a '^heddle: ' | grep -v -a -e '^heddle: initial weights ' -e 'bound this rank to' -e 'of the matmul rate of'; }
# Prints the messages of a failure: a resumed run also prints where it resumed and what has changed, which is left out.
failures() { messages | grep -v -e 'resumed from' -e ' was made with ' -e ' was to end at ' -e ' have changed: ' -e ' contained another run, ' -e ' which stay unread: '; }
no() {	# PATTERN args...: the program refuses with one message, which matches
	pattern=$1
	shift
	out=$(heddle "$@" 2>&1)
	rc=$?
	said=$(printf '%s\n' "$out" | messages)
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] &&
		printf '%s\n' "$said" | grep -Eq -e "$pattern"
	tap_result $? "$*" || printf 'status %s\n%s\n want %s\n' $rc "$out" "$pattern" | tap_comment
}
json() { printf '%s\n' "$1" | sed -n "s/.*\"$2\": *\(-\{0,1\}[0-9.eE+-]*\).*/\1/p"; }
