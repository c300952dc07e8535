#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fuzzing plugins (t1113) call every function of the public headers and fill every slot and table.  If this broke,
# functions added by a later minor version would never be tested with random arguments.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

fuzz="t/plugins/fuzz.c t/plugins/fuzz_tables.c t/lib/fuzz_args.h t/lib/fuzz_calls.h t/lib/fuzz_op.h"

# functions HEADER: prints the names of its function pointers, functions of the engine and slots of a plugin.
functions() { grep -oE '\(\*[a-z_0-9]+\)\(' "$1" | tr -d '(*)' | sort -u; }
# uses NAME: succeeds if the plugins call this function or fill this slot.
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
	none "each function of ${h##*/} is called or filled" "$missing"
done
ok "the functions of the headers are found ($all)" test "$all" -ge 80

tables=$(sed -n '/^struct hd_plugin {/,/^};/p' include/heddle/strategy.h | tr '\n' ' ' |
	grep -oE '\*[a-z]+;' | tr -d '*;')
missing=
for t in $tables; do
	uses "$t" || missing="$missing $t"
done
none "each table of a plugin is filled" "$missing"
ok "... and the tables are found" test "$(printf '%s\n' $tables | wc -l)" -ge 6


cat $fuzz | grep -q "hd_bucket_sums("
tap_result $? "hd_bucket_sums, which is compiled into a plugin, is called"

# Each call must be a row of the table, so that t1113 counts it.
made=$(grep -oE '^CALL\([a-z_]+\)' t/lib/fuzz_calls.h | sed 's/CALL(\(.*\))/call_\1/' | sort)
drawn=$(grep -oE 'call_[a-z_]+,' t/lib/fuzz_calls.h | tr -d , | sort)
is "each call is in the table of calls to draw from" "$drawn" "$made"
done_testing
