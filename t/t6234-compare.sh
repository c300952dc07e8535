#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# conf/compare.sh shows that all layouts train the same model.  If this broke, people who try our first claim would not
# see it confirmed.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

table=$(HEDDLE="$build/heddle" "$src/conf/compare.sh" text.txt 4 2>err)
is "compare.sh succeeds" $? 0
[ -n "$table" ] || tap_comment <err
is "its table has six layouts" "$(printf '%s\n' "$table" | sed -n 1p | wc -w | tr -d ' ')" 6
is "all initial weights have one hash" \
	"$(printf '%s\n' "$table" | sed -n 's/^initial weights *//p' | tr -s ' ' '\n' | sort -u | wc -l | tr -d ' ')" 1
is "the table has the losses of steps 1, 2 and 4" "$(printf '%s\n' "$table" | grep -c '^loss, step')" 3
ok "the losses are equal to five digits" \
	awk '/^loss|^valid/ { sub(/^[^.]*  /, ""); n = split($0, x, " "); l = x[n]; for (i = n - 5; i <= n; i++) { d = x[i] / l - 1
	if (!(d < 1e-5 && d > -1e-5)) exit 1; seen++ } } END { exit seen != 24 }' <<END
$table
END
fails "without a text compare.sh fails" "$src/conf/compare.sh"
ok "its usage is printed on request" "$src/conf/compare.sh" --help
done_testing
