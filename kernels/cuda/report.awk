# SPDX-License-Identifier: Apache-2.0
# Prints the output of ptxas -v in one line per kernel, and marks kernels that spill.
/Compiling entry function/ { split($0, a, "'"); name = a[2] }
/bytes stack frame/ { spill = $0; sub(/^[^0-9]*[0-9]+ bytes stack frame, /, "", spill); }
/Used [0-9]+ registers/ {
	match($0, /Used [0-9]+ registers/)
	registers = substr($0, RSTART + 5, RLENGTH - 15)
	bad = spill !~ /^0 bytes spill stores, 0 bytes spill loads/
	printf "%-24s %3d registers, %s%s  %s\n", file, registers, spill, bad ? "  SPILLS" : "", name
}
/error|warning/ { print }
