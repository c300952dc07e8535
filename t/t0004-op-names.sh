#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An op says what it is beside its struct hd_op (engine/graph/op.h).  Whoever asks for its name instead takes a plugin's op of
# that name for the engine's (t1104), and has to be found by whoever adds an op.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

ops=$(sed -n 's/^OP(\([a-z0-9_]*\))$/\1/p' engine/ops/list.h | paste -sd '|' -)
ok "there is a list of ops" [ "$(echo "$ops" | tr '|' '\n' | grep -c .)" -gt 50 ]

# A key of the INI may be called as an op is.
code=$(bin/sources --files | grep '^engine/.*\.[ch]$' | grep -v -e '^engine/ops/' -e '^engine/config/')
finds() { echo "$code" | xargs grep -Hn -E "$@" | sed 's/[[:space:]][[:space:]]*/ /g'; }

is "nothing is compared with the name of an op" "$(finds -e '(cmp|strstr)\([^;]*op->name' -e 'cmp\([^;]*v\.kind, "' \
	-e "cmp\\([^;]*\"($ops)\"")" ""
is "no list has names of ops" "$(finds -e "char[^;=]*\\[[^]]*\\] *= *\\{.*\"($ops)\" *[,}]" -e "^[[:space:]]*\"($ops)\" *(,|\$)")" ""
done_testing
