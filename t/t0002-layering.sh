#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The engine knows nothing of any strategy, and a plugin knows nothing but the installed headers.  As soon as one place
# breaks that rule, the next strategy can no longer be written outside this tree.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

all=$(bin/sources --files)
core=$(echo "$all" | grep -e '^engine/' -e '^kernels/' -e '^include/')
code=$(echo "$all" | grep '\.\(c\|h\|cc\|cu\|cuh\)$')
plugins=$(echo "$code" | grep '^plugins/')
modules=$(ls "$build"/plugins/*/.libs/*.so 2>/dev/null)

# none NAME TEXT: checks that the text, a list of findings, is empty.
none() {
	[ -z "$2" ]
	tap_result $? "$1" || printf '%s\n' "$2" | tap_comment
}

# find_in FILES GREP-OPTIONS...: prints each match as file:line:text.
find_in() {
	files=$1
	shift
	[ -z "$files" ] || echo "$files" | xargs grep -Hn "$@" 2>/dev/null
}

# (a) Names of systems and kinds of parallelism.  Three exceptions: a line that cites a paper may name it, gshard is a
# value of the key "router", and the data readers know other systems' formats.
words='(data|tensor|pipeline|expert|sequence|context)[-_ ]?parallel|megatron|horovod|gpipe|1f1b|gshard'
words="$words|deepspeed|colossal|ulysses|interleaved schedule"
words="$words|(^|[^a-z0-9])(summa|ptd(-p)?|zero[-_ ]?[123])([^a-z0-9]|\$)"
allowed() {
	grep -vE -e '[0-9]{4}\.[0-9]{5}' -e 'et al\.' |
		grep -vE -e '^engine/data/[a-z_]*\.[ch]:.*[Mm]egatron' -e '^engine/config/conf[a-z_]*\.[ch]:.*\.bin' |
		grep -viE -e '"gshard"' -e 'router[a-z ]*=[^=]*gshard' -e 'ROUTER_GSHARD'
}
none "engine, kernels and headers name no strategy" "$(find_in "$core" -iE -e "$words" | allowed)"
none "... nor ZeRO" "$(find_in "$core" -wE -e 'ZeRO(-[0-9])?' | allowed)"
none "... nor axes by the names that users give them" \
	"$(find_in "$(echo "$core" | grep -v ^kernels/)" -wE -e "dp|tp|pp|ep|cp")"

# (b) What plugins include.
libc='ctype|errno|float|inttypes|limits|math|stdarg|stdbool|stddef|stdint|stdio|stdlib|string|strings'
none "plugins include only the installed headers, those of libc, and their own" \
	"$(find_in "$plugins" -E '^ *# *include' |
	grep -vE -e "include <heddle/[a-z]+\\.h>" -e "include <($libc)\\.h>" -e 'include "[a-z0-9_]+\.h"')"

# (c) Variables and symbols of the built plugins.
if [ -z "$modules" ]; then
	skip "no plugin is built, so mutable globals are not looked for"
	skip "no plugin is built, so undefined symbols are not looked for"
	skip "no plugin is built, so exported symbols are not looked for"
else
	of_runtime='(completed\.[0-9]+|__dso_handle|_DYNAMIC|_GLOBAL_OFFSET_TABLE_|__bss_start|_edata|_end|__TMC_END__|'
	of_runtime="$of_runtime"'__(frame_dummy|do_global_dtors_aux)_(init|fini)_array_entry)$'
	globals= undefined= exported=
	for m in $modules; do
		name=${m##*/}
		# Const tables of pointers are in .data.rel.ro, which is read-only once relocated, although nm also
		# marks it d.
		found=$(objdump -t "$m" | grep -E '[[:space:]](\.data|\.bss|\.tdata|\.tbss)[[:space:]]' |
			grep -vE -e '[[:space:]]d[[:space:]]+\.' -e "[[:space:]]$of_runtime" -e '\.hidden __(dso_handle|TMC_END__)')
		globals="$globals${found:+$name: $found
}"
		found=$(nm -D --undefined-only "$m" | grep -v -e '@GLIBC_' -e ' w ')
		undefined="$undefined${found:+$name: $found
}"
		found=$(nm -D --defined-only "$m" | grep -v ' heddle_plugin_v[0-9]*$')
		exported="$exported${found:+$name: $found
}"
	done
	none "built plugins have no mutable globals" "$globals"
	none "built plugins need no symbols but those of libc" "$undefined"
	none "built plugins export only their entry point" "$exported"
fi

# (i) A folder of the engine uses only the folders that t/lib/folders allows it.
. "$src/t/lib/folders.sh"
none "the table of folders has no cycle" "$(folders_circles)"
none "every folder is in the table" "$(folders_code | sed 's|/[^/]*$||' | sort -u | while read -r f; do
	folders_table | grep -q "^$f:" || echo "$f"
done)"
none "no folder has more than fifteen C files" "$(echo "$code" | grep -v '^t/' | sed 's|/[^/]*$||' | sort | uniq -c |
	while read -r n f; do
		[ "$n" -le 15 ] || echo "$f: $n"
	done)"
none "a file includes only headers of the folders that its own folder may use" "$(folders_includes | folders_refused)"
folders_objects >"$tmp/objects"
if [ -s "$tmp/objects" ]; then
	folders_symbols >"$tmp/symbols"
	none "... and calls only functions of those folders" "$(folders_uses | folders_refused)"
	none "every global function is declared in a header of its folder" "$(folders_undeclared)"
else
	skip "nothing is built, so symbols used between folders are not checked"
	skip "nothing is built, so declarations of functions are not checked"
fi

# (j) The place for new nodes is one value (struct cursor): code that sets its fields one by one would someday forget
# one.
none "the cursor of a plan is only assigned as a complete struct" \
	"$(find_in "$(echo "$code" | grep -e '^engine/' -e '^t/')" \
	-E 'cursor(\.|->)[a-z]+ *([-+|&]?=[^=]|\+\+|--)')"

# (k) Within the program, the cuda device or a plugin, a struct shares its name with no function and no other struct,
# even where those are private to a file.  A search for the name then finds one thing.
. "$src/t/lib/names.sh"
none "no struct shares its name with a function or another struct: the program" \
	"$(names_shared "$(echo "$code" | grep -e '^engine/' -e '^kernels/' -e '^include/' | grep -v '^kernels/cuda/')")"
none "... nor in the cuda device" \
	"$(names_shared "$(echo "$code" | grep -e '^engine/base/' -e '^engine/device/' -e '^include/' \
	-e '^kernels/' | grep -v -e '^kernels/cpu/' -e '^kernels/ref/')")"
none "... nor in a plugin" \
	"$(echo "$code" | grep -e '^plugins/' -e '^examples/' | cut -d/ -f1,2 | sort -u | while read -r f; do
	names_shared "$(echo "$code" | grep -e "^$f/" -e '^include/')"
done)"

# (d) Only the program may end the process, and only the engine may print.
none "kernels and plugins do not exit, abort or print" "$(find_in "$(echo "$code" | grep -e '^kernels/' -e '^plugins/' | grep -v '^kernels/cuda/sim/.*\.cc')" \
	-E '(^|[^a-z0-9_])(_?exit|abort|assert|f?printf|vf?printf|puts|fputs|perror)[[:space:]]*\(')"

# (f) Pages must be readable at one sitting; t0001 has the limit for source files.
none "no page or INI file has more than 800 lines" "$(for f in $(echo "$all" | grep '\.\(md\|ini\)$'); do
	n=$(wc -l <"$f")
	[ "$n" -le 800 ] || echo "$f: $n"
done)"

# (g) The files of the project speak of nothing but the project.
none "no file names a developer's machine or an issue tracker" "$(find_in "$(echo "$all" | grep -v '^LICENSE$')" \
	-iE -e '(^|[^a-z0-9.])/([w]ork|[r]oot)/' -e '(^|[^a-z])[s]essions?([^a-z]|$)' -e '[i]ssue #')"

# (h) Any compiler accepts each public header by itself.
alone() {
	for h in include/heddle/*.h; do
		echo "#include <heddle/${h##*/}>" >"$tmp/alone.c"
		echo "extern int not_empty;" >>"$tmp/alone.c"
		"$@" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only "$tmp/alone.c" || return 1
	done
}
ok "each public header compiles by itself as C11" alone cc -std=c11 -x c
if command -v c++ >/dev/null; then
	ok "each public header compiles by itself as C++17" alone c++ -std=c++17 -x c++
else
	skip "no C++ compiler"
fi
done_testing
