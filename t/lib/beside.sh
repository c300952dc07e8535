# SPDX-License-Identifier: Apache-2.0
# t/lib/beside.sh - what a rank computes during its movements, by the order of events in a trace (log.trace); after
# tiny.sh. A loaded machine stretches all times, but does not change the order in which a rank starts and waits.
#
#	beside FILE PATTERN	prints three numbers for rank 0: the movements whose name matches; those between whose start
#				and wait a product begins; and those that end less than $delay microseconds after another,
#				impossible if one delay begins when the other is over

cat >beside.awk <<'END'
function value(key,    s) {
	if (!match($0, "\"" key "\":\"?[^,\"}]*"))
		return ""
	s = substr($0, RSTART, RLENGTH)
	sub(/^[^:]*:"?/, "", s)
	return s
}
value("pid") != "0" || value("tid") == 0 { next }
value("ph") == "X" && value("name") == "einsum" { product[++products] = value("ts") + 0 }
value("ph") == "X" && value("name") == "wait" { waited = value("ts") + 0 }	# the lines after it are its movement's
value("ph") == "b" && value("name") ~ pattern {
	moves++
	found = 0
	begun = value("ts") + 0		# a number: as texts, 99999 is after 100000
	for (i = 1; i <= products && !found; i++)
		found = product[i] > begun && product[i] < waited
	beside += found
}
value("ph") == "e" && value("name") ~ pattern { ends[moves] = value("ts") + 0 }
END {
	for (i = 1; i <= moves; i++)
		for (k = 1; k <= moves; k++)
			if (k != i && ends[i] >= ends[k] && ends[i] - ends[k] < delay && (ends[i] > ends[k] || i > k)) {
				together++
				break
			}
	print moves + 0, beside + 0, together + 0
}
END
beside() { awk -v pattern="$2" -v delay="$delay" -f beside.awk "$1"; }	# FILE PATTERN
