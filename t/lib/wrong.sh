# SPDX-License-Identifier: Apache-2.0
# t/lib/wrong.sh - builds a plugin of t/plugins with one fault, and checks what heddle conform reports.  Needs $src,
# $plugin (its name) and $only (the checks that must find the fault).

wrong() { # -D...: builds $plugin.so with this fault
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o "$plugin.so" "$src/t/plugins/$plugin.c" -lm
}
says() { # NAME PATTERN STATUS args...
	name=$1 pattern=$2 status=$3
	shift 3
	heddle conform "./$plugin.so" "$@" >out 2>err
	[ $? -eq "$status" ] && grep -Eq -e "$pattern" out
	tap_result $? "$name" || { grep -A3 '^not ok' out; tail -2 out; cat err; } | head -20 | tap_comment
}
fault() { # NAME PATTERN -D...
	name=$1 pattern=$2
	shift 2
	wrong "$@"
	says "$name" "^#   $pattern" 1 --only "$only" --limit "${limit:-20}"
}
