# SPDX-License-Identifier: Apache-2.0
# t/lib/names.sh - finds names that two things share, for t0002.  Needs $tmp; the working folder is $src.

# Prints NAME FILE for each struct, union and (in C++) class that is defined.
names_structs() {
	echo "$1" | xargs grep -HoE '(^|[^A-Za-z0-9_])(struct|union) [A-Za-z_][A-Za-z0-9_]* *(: [a-z ]*)?\{' |
		sed -E 's/^([^:]*):.*(struct|union) ([A-Za-z0-9_]*) *(:.*)?\{$/\3 \1/' | sort -u
}

# Prints NAME FILE for each function that is defined or declared.  The formatter puts its type and name at the beginning
# of a line.
names_functions() {
	echo "$1" | xargs grep -HoE '^(template <[^>]*> )?[A-Za-z_][A-Za-z0-9_ *]*[ *][A-Za-z_][A-Za-z0-9_]*\(' |
		sed -E 's/^([^:]*):.*[ *]([A-Za-z_][A-Za-z0-9_]*)\($/\2 \1/' | sort -u
}

# names_shared FILES: prints a line for each struct whose name is also that of a function or another struct.
names_shared() {
	names_structs "$1" >"$tmp/structs"
	names_functions "$1" >"$tmp/functions"
	awk 'NR == FNR {
		if ($1 in structs)
			print "struct " $1 " in " structs[$1] " and in " $2
		structs[$1] = $2
		next
	}
	$1 in structs && !($1 in told) { print "struct " $1 " in " structs[$1] ", function " $1 " in " $2; told[$1] = 1 }' \
		"$tmp/structs" "$tmp/functions"
}
