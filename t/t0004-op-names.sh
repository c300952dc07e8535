#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An op's properties are declared with its struct hd_op (engine/graph/op.h).  Code that compares names instead would
# mistake a plugin's op of the same name for the engine's (t1104), and whoever adds an op would have to find that code.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

ops=$(sed -n 's/^OP(\([a-z0-9_]*\))$/\1/p' engine/ops/list.h | paste -sd '|' -)
ok "the list of ops is found" [ "$(echo "$ops" | tr '|' '\n' | grep -c .)" -gt 50 ]

# A key of the INI may have the same name as an op.
code=$(bin/sources --files | grep '^engine/.*\.[ch]$' | grep -v -e '^engine/ops/' -e '^engine/config/')
finds() { echo "$code" | xargs grep -Hn -E "$@" | sed 's/[[:space:]][[:space:]]*/ /g'; }

is "no code compares a text with the name of an op" \
	"$(finds -e '(cmp|strstr)\([^;]*op->name' -e 'cmp\([^;]*v\.kind, "' \
	-e "cmp\\([^;]*\"($ops)\"")" ""
is "no table lists names of ops" \
	"$(finds -e "char[^;=]*\\[[^]]*\\] *= *\\{.*\"($ops)\" *[,}]" -e "^[[:space:]]*\"($ops)\" *(,|\$)")" ""
done_testing
