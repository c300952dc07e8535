#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fuzzing plugins (t1113) call every function of the public headers and fill every slot and table of them.  If this broke, what a
# later minor adds would be called by nobody with arguments of any kind.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

fuzz="t/plugins/fuzz.c t/plugins/fuzz_tables.c t/lib/fuzz_args.h t/lib/fuzz_calls.h t/lib/fuzz_op.h"

# Pointers to functions, by header: what the engine offers, and slots of a plugin.
functions() { grep -oE '\(\*[a-z_0-9]+\)\(' "$1" | tr -d '(*)' | sort -u; }
# uses NAME: calls it, or fills the slot.
uses() { cat $fuzz | grep -qE -e "(->|\\.)$1\\(" -e "(->|\\.)$1 = "; }

none() {	# NAME WHAT
	[ -z "$2" ]
	tap_result $? "$1" || printf '%s\n' $2 | tap_comment
}

all=0
for h in include/heddle/*.h; do
	missing=
	for f in $(functions "$h"); do
		all=$((all + 1))
		uses "$f" || missing="$missing $f"
	done
	none "each function of ${h##*/}" "$missing"
done
ok "there are as many as a plugin has ($all)" test "$all" -ge 80

tables=$(sed -n '/^struct hd_plugin {/,/^};/p' include/heddle/strategy.h | tr '\n' ' ' |
	grep -oE '\*[a-z]+;' | tr -d '*;')
missing=
for t in $tables; do
	uses "$t" || missing="$missing $t"
done
none "each table of a plugin" "$missing"
ok "of which there are some" test "$(printf '%s\n' $tables | wc -l)" -ge 6


cat $fuzz | grep -q "hd_bucket_sums("
tap_result $? "sums of buckets, which are compiled into a plugin"

# Each call is a row of the table, so that t1113 counts it.
made=$(grep -oE '^CALL\([a-z_]+\)' t/lib/fuzz_calls.h | sed 's/CALL(\(.*\))/call_\1/' | sort)
drawn=$(grep -oE 'call_[a-z_]+,' t/lib/fuzz_calls.h | tr -d , | sort)
is "each call is drawn" "$drawn" "$made"
done_testing
