# SPDX-License-Identifier: Apache-2.0
# t/lib/tap.sh - the check functions of tap.h for tests in sh.  A test begins with
#
#	#!/bin/sh
#	# what would break in the field
#	. "${0%/*}/lib/tap.sh"
#
# and then has $src (the source tree), $build (the build tree), $tmp (an empty folder, removed at the end), and
#
#	ok NAME command [args...]	the command succeeds; its output is shown if it does not
#	fails NAME command [args...]	the command fails by itself (not by a signal)
#	is NAME GOT WANT		the texts are equal
#	like NAME TEXT PATTERN		the extended regular expression matches a line of the text
#	unlike NAME TEXT PATTERN	it matches no line of the text
#	near NAME GOT WANT TOLERANCE	the numbers differ by at most TOLERANCE
#	skip WHY			skips one check that cannot be made here
#	skip_all WHY			skips the complete test and ends it; must come before any check
#	note TEXT			prints the text as a comment
#	open_mpi N			succeeds if mpirun is that of Open MPI N or later
#	mpi N command [args...]		runs it on N ranks with a time limit (HD_TEST_SECONDS, 300), in case it hangs
#	$(patience)			the factor, 1 or more, by which other programs slow this one down at the moment;
#					time limits are multiplied by it, so that a busy machine fails no test
#	whole_sweep			fails in the tiers check and ci, where a part of a long sweep is enough
#	done_testing			prints the plan and exits with the status; must be the last command
#
# HD_TEST_REQUIRE=gpu,nccl makes a skip fail if its reason has one of these words.

unset CDPATH
src=$(cd "${0%/*}/.." && pwd)
if [ -n "$HD_BUILD" ]; then
	build=$(cd "$HD_BUILD" && pwd)
elif [ -f config.status ]; then
	build=$(pwd)
else
	build=$src/build
fi
tmp=$(mktemp -d "${TMPDIR:-/tmp}/heddle-test.XXXXXX") || exit 1
tap_count=0
tap_failed=0
tap_planned=no
trap 'rm -rf "$tmp"; [ $tap_planned = yes ] || { echo "# ended early"; exit 1; }' EXIT
trap 'exit 1' INT TERM

# Allows several ranks on few cores, also as root in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

whole_sweep() { [ "$HD_TEST_TIER" != check ] && [ "$HD_TEST_TIER" != ci ]; }

tap_result() {			# PASS(0 or not) NAME
	tap_count=$((tap_count + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $tap_count - $2"
	else
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_count - $2"
		return 1
	fi
}

tap_comment() { sed 's/^/# /'; }

ok() {
	tap_name=$1
	shift
	"$@" >"$tmp/.ok" 2>&1
	tap_rc=$?
	tap_result $tap_rc "$tap_name" || { echo "# exit status $tap_rc: $*"; tap_comment <"$tmp/.ok"; }
}

fails() {
	tap_name=$1
	shift
	"$@" >"$tmp/.ok" 2>&1
	tap_rc=$?
	[ $tap_rc -gt 0 ] && [ $tap_rc -lt 124 ]
	tap_result $? "$tap_name" || { echo "# exit status $tap_rc: $*"; tap_comment <"$tmp/.ok"; }
}

is() {
	[ "$2" = "$3" ]
	tap_result $? "$1" || printf '  got %s\n want %s\n' "$2" "$3" | tap_comment
}

like() {
	printf '%s\n' "$2" | grep -Eq -e "$3"
	tap_result $? "$1" || printf '  got %s\n want a match of %s\n' "$2" "$3" | tap_comment
}

unlike() {
	! printf '%s\n' "$2" | grep -Eq -e "$3"
	tap_result $? "$1" || printf '  got %s\n want no match of %s\n' "$2" "$3" | tap_comment
}

near() {
	awk -v g="$2" -v w="$3" -v t="$4" 'BEGIN {
		number = "^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$"
		d = g - w
		exit !(g ~ number && w ~ number && d <= t + 0 && -d <= t + 0)
	}'
	tap_result $? "$1" || printf '  got %s\n want %s within %s\n' "$2" "$3" "$4" | tap_comment
}

note() { printf '%s\n' "$*" | tap_comment; }

tap_required() {
	for tap_word in $(echo "$HD_TEST_REQUIRE" | tr ',' ' '); do
		printf '%s\n' "$1" | grep -qiw -e "$tap_word" && return 0
	done
	return 1
}

skip() {
	if tap_required "$1"; then
		tap_result 1 "required: $1"
	else
		tap_count=$((tap_count + 1))
		echo "ok $tap_count # SKIP $1"
	fi
}

skip_all() {
	tap_planned=yes
	if tap_required "$1" || [ $tap_count -gt 0 ]; then
		tap_result 1 "required: $1"
		done_testing
	fi
	echo "1..0 # SKIP $1"
	exit 0
}

patience() {			# the elapsed time of a computation divided by its processor time, rounded up
	tap_from=$(date +%s%N)
	tap_used=$(sh -c 'awk "BEGIN { for (i = 0; i < 5000000; i++) x += i }"; times' | tail -1 |
		awk -F '[ms ]+' '{ print ($1 + $3) * 60 + $2 + $4 }')
	awk -v from="$tap_from" -v to="$(date +%s%N)" -v used="$tap_used" \
		'BEGIN { p = (to - from) / 1e9 / (used > 0.01 ? used : 0.01); print (p > 1.2 ? int(p + 0.999) : 1) }'
}

open_mpi() { [ "$(mpirun --version 2>/dev/null | sed -n '1s/.*(Open MPI) \([0-9]*\).*/\1/p')" -ge "$1" ] 2>/dev/null; }

mpi() {
	tap_n=$1
	shift
	timeout -k 5 "${HD_TEST_SECONDS:-300}" mpirun -np "$tap_n" --oversubscribe --bind-to none "$@" </dev/null
}

done_testing() {
	tap_planned=yes
	echo "1..$tap_count"
	[ $tap_count -gt 0 ] || echo "# nothing was checked"
	[ $tap_failed -eq 0 ] || echo "# $tap_failed of $tap_count failed"
	[ $tap_count -gt 0 ] && [ $tap_failed -eq 0 ]
	exit $?
}
