#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: t6028-kills.sh [N [SEED]]
# Ranks that are killed at any moment, full disks and power cuts.  What a run has saved must be complete, and the
# resumed run must compute the same as one that was not disturbed.  Otherwise weeks on many machines depend on luck.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v perl >/dev/null || skip_all "there is no perl"

n=${1:-4} seed=${2:-$(date +%s)}
! whole_sweep || n=${1:-20}
sed -e 's/^embed.*/embed = 16/; s/^heads.*/heads = 2/' -e '/^\[strategy/,$d' tiny.ini >one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout dp '[strategy dp]\nplugin = dp\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\n'
layout pp '[strategy pp]\nplugin = pp\nsize = 2\n'

ok "a library that records writes is built" \
	${CC:-cc} -O1 -g -fPIC -shared -DHD_POWER_CUT -o cut.so "$src/t/lib/power_cut.c" -ldl
kills() { perl "$src/t/lib/kills.pl" "$build/heddle" "$@"; }
kills same $(((n + 1) / 2)) "$seed" "$tmp/cut.so" dp:2 >same.out 2>&1
tap_result $? "$(tail -1 same.out)"
tap_comment <same.out
rm -rf disk/ck whole m.jsonl
kills changed $((n / 2)) "$seed" "$tmp/cut.so" dp:2 tp:2 pp:2 one:1 >changed.out 2>&1
tap_result $? "$(tail -1 changed.out)"
tap_comment <changed.out
done_testing
