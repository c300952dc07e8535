#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For every hybrid in conf/, the bytes that explain prints for each axis are those that the transports count in a run. A
# plan for a large machine adds up explained bytes. If two strategies together sent more, the plan would be wrong.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

small="--set data.train=text.txt --set train.threads=1 --set train.seq=16 --set train.micro_batch=1 --set model.embed=32
	--set model.heads=4 --set model.vocab=256"
value() { sed -n "s/^$2 *= *\([0-9.]*\).*/\1/p" "$src/conf/$1" | tail -1; }

# explained KEY: prints a line "AXIS BYTES" for each axis, with the maximum over all ranks.
explained() {
	for r in $(seq 0 $((ranks - 1))); do
		heddle explain "$src/conf/$conf" $flags --ranks $ranks --rank $r --json | tr '{' '\n' | awk -v key="$1" '
			function field(name,  s) {
				if (!match($0, "\"" name "\": ")) return ""
				s = substr($0, RSTART + RLENGTH); sub(/^"/, "", s); sub(/[",}].*/, "", s)
				return s
			}
			/"collective"/ {
				bytes = field(key)
				sum[field("axis")] += (bytes == "" ? field("bytes") : bytes) * field("count")
			}
			END { for (a in sum) printf "%s %d\n", a, sum[a] }'
	done | awk '$2 > most[$1] { most[$1] = $2 } END { for (a in most) if (most[a]) print a, most[a] }' | sort
}
counted() {
	printf '%s\n' "$ran" | sed -n 's/.*"bytes": {\([^}]*\)}.*/\1/p' | tr ',' '\n' | sed 's/[" ]//g; s/:/ /' |
		awk '$2 > 0' | sort
}

seen=0
for file in "$src"/conf/*.ini; do
	conf=${file##*/}
	strategies=$(grep -c '^\[strategy' "$file")
	[ "$strategies" -ge 2 ] || continue
	flags=$small
	[ "$(value $conf layers)" -le 8 ] || continue		# a layout for thousands of ranks
	[ -z "$(value $conf experts)" ] || flags="$flags --set model.mlp=64"
	# the product of the sizes; auto is 2
	ranks=$(awk '/^\[strategy/ { inside = 1 } inside && /^size *=/ { n = (n ? n : 1) * ($3 == "auto" ? 2 : $3) }
		END { print n }' "$file")
	[ "$ranks" -le 12 ] || continue
	! grep -q '^global_batch_ramp' "$file" || flags="$flags --set train.global_batch_ramp="
	seen=$((seen + 1))
	ran=$(heddle_mpi $ranks bench "$file" $flags --json --steps 1 2>err)
	[ -n "$ran" ] || messages <err | tap_comment
	said=$(explained bytes)
	if [ "$said" = "$(explained largest)" ]; then
		is "$conf, $ranks ranks: a run sends the bytes that explain prints" "$(counted)" "$said"
	else			# the tokens decide how many bytes are sent
		most=$(explained largest)
		printf '%s\n' "$said" >said
		printf '%s\n' "$most" >most
		counted >counted
		is "$conf, $ranks ranks: a run sends on the axes that explain lists" \
			"$(cut -d' ' -f1 counted)" "$(cut -d' ' -f1 said)"
		is "$conf, $ranks ranks: no axis exceeds the largest case" "$(join counted most | awk '$2 > $3')" ""
		is "$conf, $ranks ranks: axes without routed tokens send the bytes that explain prints" \
			"$(join said most | join - counted | awk '$2 == $3 && $2 != $4')" ""
		ok "$conf, $ranks ranks: the balanced case is below the largest case" \
			[ -n "$(join said most | awk '$2 < $3')" ]
	fi
done
ok "conf/ contains at least three hybrids" [ $seen -ge 3 ]
done_testing
