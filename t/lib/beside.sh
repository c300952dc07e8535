# SPDX-License-Identifier: Apache-2.0
# t/lib/beside.sh - what a rank computes during its movements, by the order of events in a trace (log.trace); after
# tiny.sh. A loaded machine stretches all times, but does not change the order in which a rank starts and waits.
#
#	beside FILE PATTERN	prints three numbers for rank 0: the movements whose name matches; those followed by the
#				start of a product before anything is waited for; and those that end less than $delay
#				microseconds after another, impossible if one delay begins when the other is over

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
