#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# conf/compare.sh, which shows that all layouts train the same model.  If this broke, the first thing that we claim would
# not be seen by who tries it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

table=$(HEDDLE="$build/heddle" "$src/conf/compare.sh" text.txt 4 2>err)
is "compare.sh is content" $? 0
[ -n "$table" ] || tap_comment <err
is "six layouts" "$(printf '%s\n' "$table" | sed -n 1p | wc -w | tr -d ' ')" 6
is "one hash of initial weights" "$(printf '%s\n' "$table" | sed -n 's/^initial weights *//p' | tr -s ' ' '\n' | sort -u | wc -l | tr -d ' ')" 1
is "losses of steps 1, 2 and 4" "$(printf '%s\n' "$table" | grep -c '^loss, step')" 3
ok "equal to five digits" awk '/^loss|^valid/ { sub(/^[^.]*  /, ""); n = split($0, x, " "); l = x[n]; for (i = n - 5; i <= n; i++) { d = x[i] / l - 1
	if (!(d < 1e-5 && d > -1e-5)) exit 1; seen++ } } END { exit seen != 24 }' <<END
$table
END
fails "without a text it says how to use it" "$src/conf/compare.sh"
done_testing
