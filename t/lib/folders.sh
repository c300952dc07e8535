# SPDX-License-Identifier: Apache-2.0
# t/lib/folders.sh - finds which folder uses which, for t0002.  Needs $src, $build, $tmp and $all (bin/sources --files);
# the working folder is $src.

# Prints the table, each folder with all folders that it may use; FOLDER/ stands for the matching ones above the line.
folders_table() {
	sed -e 's/#.*//' -e '/^ *$/d' t/lib/folders | awk -F: '{
		n = split($2, uses, " ")
		printf "%s:", $1
		for (i = 1; i <= n; i++) {
			inside = uses[i]
			if (!sub(/\/$/, "", inside))
				printf " %s", uses[i]
			else
				for (k = 1; k < NR; k++)
					if (index(above[k] "/", inside "/") == 1)
						printf " %s", above[k]
		}
		printf "\n"
		above[NR] = $1
	}'
}

# Prints the entries of the table that name a folder which is not above them.
folders_circles() {
	folders_table | awk -F: '{
		n = split($2, uses, " ")
		for (i = 1; i <= n; i++)
			if (!(uses[i] in above))
				print $1 " names " uses[i] ", which is not above it"
		above[$1] = 1
	}'
}

# Reads lines "FOLDER USED WHERE NAME", and prints those that the table does not allow.
folders_refused() {
	folders_table | awk -F: '{ n = split($2, uses, " "); print $1, $1; for (i = 1; i <= n; i++) print $1, uses[i] }' >"$tmp/allowed"
	awk 'NR == FNR { allowed[$1, $2] = 1; next } !(($1, $2) in allowed) { print $1 " may not use " $2 ": " $3 " " $4 }' "$tmp/allowed" -
}

folders_code() { echo "$all" | grep -E '^(engine|kernels)/.*\.(c|h|cu|cc)$'; }

folders_includes() {
	folders_code | xargs grep -HoE '#include "(engine|kernels)/[^"]*"' | sed 's/:#include "/ /; s/"$//' |
		awk 'function folder(f) { sub(/\/[^\/]*$/, "", f); return f } { print folder($1), folder($2), $1, $2 }'
}

# Prints SOURCE OBJECT for each source that is compiled.  (A build folder may have objects of older sources too.)
folders_objects() {
	folders_code | while read -r f; do
		name=${f##*/}
		case $f in
		*/main.c) prefix= ;;
		engine/base/* | engine/device/*) prefix=libbase_a- ;;
		engine/*) prefix=libheddle_a- ;;
		kernels/ref/*) prefix=libref_a- ;;
		*) prefix=libcpu_a- ;;
		esac
		o=$build/${f%/*}/$prefix${name%.c}.o
		[ ! -f "$o" ] || echo "$f $o"
	done
}

# Prints SOURCE TYPE SYMBOL for each global symbol.
folders_symbols() {
	cut -d' ' -f2 "$tmp/objects" | xargs nm -g -A | awk 'NR == FNR { source[$2] = $1; next }
		{ o = $1; sub(/:.*/, "", o); print source[o], $(NF - 1), $NF }' "$tmp/objects" -
}

# Prints FOLDER USED SOURCE SYMBOL for each symbol that a different source defines.
folders_uses() {
	awk 'function folder(f) { sub(/\/[^\/]*$/, "", f); return f }
		NR == FNR { if ($2 != "U") by[$3] = $1; next }
		$2 == "U" && $3 in by { print folder($1), folder(by[$3]), $1, $3 }' "$tmp/symbols" "$tmp/symbols"
}

# Prints global functions and tables that no header of their folder declares.
folders_undeclared() {
	folders_code | grep '\.h$' | while read -r h; do
		sed 's|//.*||' "$h" | tr -c 'A-Za-z0-9_' '\n' | grep -E '^hd_' | sort -u | sed "s|^|${h%/*} |"
	done >"$tmp/declared"
	sed -n 's/^OP(\(.*\))$/engine\/ops hd_op_\1/p' engine/ops/list.h >>"$tmp/declared"
	awk 'function folder(f) { sub(/\/[^\/]*$/, "", f); return f }
		NR == FNR { in_header[$1, $2] = 1; next }
		$1 ~ /^engine\// && $2 ~ /[TDRB]/ && $3 ~ /^hd_/ && !((folder($1), $3) in in_header) { print $1 ": " $3 }' \
		"$tmp/declared" "$tmp/symbols"
}
