# SPDX-License-Identifier: Apache-2.0
# t/lib/beside.sh - what a rank does beside its movements, from the order of the events in a trace (log.trace); after tiny.sh.
# A loaded machine stretches all times, but not the order in which a rank starts and waits.
#
#	beside FILE PATTERN	of rank 0, "MOVES BESIDE TOGETHER": movements whose name has the pattern; those after whose start a
#				product is begun, before anything is waited for; those that end less than $delay microseconds
#				after another, as none could if one delay began when the other was over

cat >beside.awk <<'END'
function value(key,    s) {
	if (!match($0, "\"" key "\":\"?[^,\"}]*"))
		return ""
	s = substr($0, RSTART, RLENGTH)
	sub(/^[^:]*:"?/, "", s)
	return s
}
value("pid") == "0" && /"ph":"[Xbe]"/ && value("tid") > 0 { print value("ts"), value("ph"), value("name") }
END
beside() {			# FILE PATTERN
	awk -f beside.awk "$1" | sort -s -n -k 1,1 | awk -v pattern="$2" -v delay="$delay" '
		$2 == "b" && $0 ~ pattern { moves++; open++ }
		$2 == "e" && $0 ~ pattern { together += ended && $1 - ended < delay; ended = $1 }
		$2 == "X" && $3 == "einsum" { beside += open; open = 0 }
		$2 == "X" && $3 == "wait" { open = 0 }
		END { print moves + 0, beside + 0, together + 0 }'
}
