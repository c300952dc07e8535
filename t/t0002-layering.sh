#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The engine knows no strategy, and a plugin knows nothing but the installed headers.  Once that is false in one place,
# the next strategy cannot be written outside of this tree.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

all=$(bin/sources --files)
core=$(echo "$all" | grep -e '^engine/' -e '^kernels/' -e '^include/')
code=$(echo "$all" | grep '\.\(c\|h\|cc\|cu\|cuh\)$')
plugins=$(echo "$code" | grep '^plugins/')
modules=$(ls "$build"/plugins/*/.libs/*.so 2>/dev/null)

# none NAME TEXT: the text, which is a list of findings, is empty.
none() {
	[ -z "$2" ]
	tap_result $? "$1" || printf '%s\n' "$2" | tap_comment
}

# find_in FILES grep-options...: file:line:text of what matches.
find_in() {
	files=$1
	shift
	[ -z "$files" ] || echo "$files" | xargs grep -Hn "$@" 2>/dev/null
}

# (a) Systems and kinds of parallelism.  A line that cites a paper may name it; gshard is a value of the key "router";
# readers of data know the formats of others.
words='(data|tensor|pipeline|expert|sequence|context)[-_ ]?parallel|megatron|horovod|gpipe|1f1b|gshard'
words="$words|deepspeed|colossal|ulysses|interleaved schedule"
words="$words|(^|[^a-z0-9])(summa|ptd(-p)?|zero[-_ ]?[123])([^a-z0-9]|\$)"
allowed() {
	grep -vE -e '[0-9]{4}\.[0-9]{5}' -e 'et al\.' |
		grep -vE -e '^engine/data/[a-z_]*\.[ch]:.*[Mm]egatron' -e '^engine/config/conf[a-z_]*\.[ch]:.*\.bin' |
		grep -viE -e '"gshard"' -e 'router[a-z ]*=[^=]*gshard' -e 'ROUTER_GSHARD'
}
none "engine, kernels and headers name no strategy" "$(find_in "$core" -iE -e "$words" | allowed)"
none "nor ZeRO" "$(find_in "$core" -wE -e 'ZeRO(-[0-9])?' | allowed)"
none "nor axes by the names users give them" \
	"$(find_in "$(echo "$core" | grep -v ^kernels/)" -wE -e "dp|tp|pp|ep|cp")"

# (b) What plugins include.
libc='ctype|errno|float|inttypes|limits|math|stdarg|stdbool|stddef|stdint|stdio|stdlib|string|strings'
none "plugins include the installed headers, libc's, and their own" "$(find_in "$plugins" -E '^ *# *include' |
	grep -vE -e "include <heddle/[a-z]+\\.h>" -e "include <($libc)\\.h>" -e 'include "[a-z0-9_]+\.h"')"

# (c) What built plugins hold and need.
if [ -z "$modules" ]; then
	skip "no plugin is built: mutable globals"
	skip "no plugin is built: undefined symbols"
	skip "no plugin is built: exported symbols"
else
	of_runtime='(completed\.[0-9]+|__dso_handle|_DYNAMIC|_GLOBAL_OFFSET_TABLE_|__bss_start|_edata|_end|__TMC_END__|'
	of_runtime="$of_runtime"'__(frame_dummy|do_global_dtors_aux)_(init|fini)_array_entry)$'
	globals= undefined= exported=
	for m in $modules; do
		name=${m##*/}
		# const tables of pointers are relocated once and then read-only: .data.rel.ro, which nm calls d as well.
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
	none "built plugins need nothing but libc" "$undefined"
	none "built plugins export their entry alone" "$exported"
fi

# (i) Folders of the engine have a direction: t/lib/folders.
. "$src/t/lib/folders.sh"
none "the table of folders has no circle" "$(folders_circles)"
none "every folder is in it" "$(folders_code | sed 's|/[^/]*$||' | sort -u | while read -r f; do
	folders_table | grep -q "^$f:" || echo "$f"
done)"
none "no folder has more than fifteen files of C" "$(echo "$code" | grep -v '^t/' | sed 's|/[^/]*$||' | sort | uniq -c |
	while read -r n f; do
		[ "$n" -le 15 ] || echo "$f: $n"
	done)"
none "a file includes headers of the folders that its own may use" "$(folders_includes | folders_refused)"
folders_objects >"$tmp/objects"
if [ -s "$tmp/objects" ]; then
	folders_symbols >"$tmp/symbols"
	none "and calls their functions" "$(folders_uses | folders_refused)"
	none "a function is declared in a header of its folder" "$(folders_undeclared)"
else
	skip "nothing is built: symbols between folders"
	skip "nothing is built: where functions are declared"
fi

# (j) Where new nodes go is one value (struct cursor): where its fields are set apart, one is forgotten some day.
none "the cursor of a plan is set as a whole" "$(find_in "$(echo "$code" | grep -e '^engine/' -e '^t/')" \
	-E 'cursor(\.|->)[a-z]+ *([-+|&]?=[^=]|\+\+|--)')"

# (k) A struct has its name alone: not a function's, and not another struct's, in the program, in the cuda device or in a
# plugin, whether others see them or not.  Who looks for a name finds one thing.
. "$src/t/lib/names.sh"
none "no struct shares its name with a function or another struct: the program" \
	"$(names_shared "$(echo "$code" | grep -e '^engine/' -e '^kernels/' -e '^include/' | grep -v '^kernels/cuda/')")"
none "nor in the cuda device" "$(names_shared "$(echo "$code" | grep -e '^engine/base/' -e '^engine/device/' -e '^include/' \
	-e '^kernels/' | grep -v -e '^kernels/cpu/' -e '^kernels/ref/')")"
none "nor in a plugin" "$(echo "$code" | grep -e '^plugins/' -e '^examples/' | cut -d/ -f1,2 | sort -u | while read -r f; do
	names_shared "$(echo "$code" | grep -e "^$f/" -e '^include/')"
done)"

# (d) Only the program may end the process, and only the host speaks.
none "kernels and plugins do not exit, abort or print" "$(find_in "$(echo "$code" | grep -e '^kernels/' -e '^plugins/' | grep -v '^kernels/cuda/sim/.*\.cc')" \
	-E '(^|[^a-z0-9_])(_?exit|abort|assert|f?printf|vf?printf|puts|fputs|perror)[[:space:]]*\(')"

# (f) Readable at one sitting; t0001 has the limit of source files.
none "no page has more than 800 lines" "$(for f in $(echo "$all" | grep '\.\(md\|ini\)$'); do
	n=$(wc -l <"$f")
	[ "$n" -le 800 ] || echo "$f: $n"
done)"

# (g) The project speaks of itself alone.
none "nothing names a developer's machine or an issue tracker" "$(find_in "$(echo "$all" | grep -v '^LICENSE$')" \
	-iE -e '(^|[^a-z0-9.])/([w]ork|[r]oot)/' -e '(^|[^a-z])[s]essions?([^a-z]|$)' -e '[i]ssue #')"

# (h) Anyone's compiler takes the public headers, each alone.
alone() {
	for h in include/heddle/*.h; do
		echo "#include <heddle/${h##*/}>" >"$tmp/alone.c"
		echo "extern int not_empty;" >>"$tmp/alone.c"
		"$@" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only "$tmp/alone.c" || return 1
	done
}
ok "public headers are C11" alone cc -std=c11 -x c
if command -v c++ >/dev/null; then
	ok "public headers are C++17" alone c++ -std=c++17 -x c++
else
	skip "no C++ compiler"
fi
done_testing
