# SPDX-License-Identifier: Apache-2.0
# t/lib/explained.sh - reads the output of `explain --json`, which is in $json.

# said FIELD-PATTERN: prints the sum of bytes x count over the collectives that match.
said() {
	printf '%s\n' "$json" | tr '{' '\n' | grep '"collective"' | grep -E -e "$1" | awk '{
		b = $0; sub(/.*"bytes": /, "", b)
		c = $0; sub(/.*"count": /, "", c)
		sum += (b + 0) * (c + 0)
	} END { printf "%d\n", sum }'
}
