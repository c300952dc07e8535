#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run over a slow cable that loses packets yields the results of one rank.  It does not mistake a slow rank for a
# lost one.  If this broke, runs would end or train wrongly on real clusters, whose networks drop packets under load.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/hosts.sh"
trap 'hosts_end; rm -rf "$tmp"; [ $tap_planned = yes ] || { echo "# ended early"; exit 1; }' EXIT

hosts_make 2
sed '/^\[strategy/,$d; s/^layers.*/layers = 4/; s/^steps.*/steps = 10/' tiny.ini >one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout tp+dp '[strategy tp]\nplugin = tp\nsize = 2\n[strategy dp]\nplugin = dp\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\n'
layout pp+dp '[strategy dp]\nplugin = dp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n'
layout hierarchical '[strategy dp]\nplugin = dp\nsync = hierarchical\n'
layout ring '[strategy dp]\nplugin = dp\nwire = fp32\nzero = 3\n'
layout server '[strategy dp]\nplugin = dp\nsync = server\n'
heddle train one.ini --set log.metrics=one.jsonl >/dev/null 2>&1

numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
# Compares losses to 1e-5 of themselves, as between any two layouts (t6231).
alike() {
	numbers "$1" >.a
	numbers "$2" >.b
	[ -s .a ] && [ "$(wc -l <.a)" -eq "$(wc -l <.b)" ] && join .a .b |
		awk '{ d = $2 - $4; if (d < 0) d = -d; print; if (!(d <= 1e-5 * $2)) bad = 1 } END { exit bad }'
}
# A lost packet is sent again after a fifth of a second, and after longer each time that it is lost again.
limit=$((120 * $(patience)))
rough() {			# LAYOUT RANKS HOSTS LOSS DELAY
	rm -f m.jsonl
	ok "h2's cable is made rough" cable_rough h2 "$4" "$5"
	ok "$1 on $3, $4 of 1000 packets lost, $5 ms: training succeeds" hosts_train "$2" "$3" "$1.ini" \
		--set log.metrics=m.jsonl
	ok "... losses are those of one rank" alike m.jsonl one.jsonl
	counts=$(cable_counts h2)
	ok "... packets crossed the cable, and some were lost" [ "${counts% *}" -gt 100 -a "${counts#* }" -ge "$4" ]
	note "$1: ${counts% *} packets, ${counts#* } lost"
}
rough tp+dp 4 h1:2,h2:2 10 2
if whole_sweep; then
	for name in tp pp+dp hierarchical ring server; do
		case $name in tp) rough $name 2 h1:1,h2:1 10 2 ;; *) rough $name 4 h1:2,h2:2 10 2 ;; esac
	done
	rough hierarchical 4 h1:2,h2:2 50 0
	rough pp+dp 4 h1:2,h2:2 0 25
fi
done_testing
