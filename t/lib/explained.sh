# SPDX-License-Identifier: Apache-2.0
# t/lib/explained.sh - what `explain --json` says, in $json.

# said FIELD-PATTERN: bytes x count of explain's JSON, of the lines that match.
said() {
	printf '%s\n' "$json" | tr '{' '\n' | grep '"collective"' | grep -E -e "$1" | awk '{
		b = $0; sub(/.*"bytes": /, "", b)
		c = $0; sub(/.*"count": /, "", c)
		sum += (b + 0) * (c + 0)
	} END { printf "%d\n", sum }'
}
