#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/plugin-reference.md: its plugin is built with the public headers and trains as dp does but for what it adds; every slot and
# function of the headers is in the page, in its code too.  A function that no page shows is found by reading the engine alone.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v "${CC:-cc}" >/dev/null || skip_all "no C compiler"

page=$src/doc/plugin-reference.md
block() { awk -v want="<!-- test: $1 -->" '$0 == want { next_one = 1 } /^```/ { on = next_one && !on; if (!on) next_one = 0; next } on' "$page"; }
block tour.c >tour.c
block serial.c >serial.c
block tour.ini >tour.ini
cp text.txt corpus.txt
ok "the plugin is built without a warning" "${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs \
	-Wl,-z,now -I"$src/include" -o tour.so tour.c
ok "so is the serial definition" "${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -I"$src/include" -c -o serial.o serial.c
like "it is accepted" "$(heddle plugins ./tour.so)" '^every +int +2 '
like "it has a plan" "$(heddle check tour.ini --ranks 2 2>&1)" '^2 ranks = t 2'
losses() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([0-9.]*\).*/\1 \2/p' "$1" | awk '{ printf "%d %.4f\n", $1, $2 }'; }
ok "it trains" heddle_mpi 2 train tour.ini --set train.threads=1 --set train.eval_batches=1 --set log.metrics=tour.jsonl --set checkpoint.dir=tour
is "four steps" "$(losses tour.jsonl | wc -l)" 4
ok "with its own optimizer" heddle_mpi 2 train tour.ini --set train.threads=1 --set train.eval_batches=1 --set checkpoint.dir=own \
	--set train.optimizer=t
ok "and goes on with its states" heddle_mpi 2 train tour.ini --set train.threads=1 --set train.eval_batches=1 --set checkpoint.dir=tour \
	--set train.steps=5 --set checkpoint.resume=auto
tr ',' '\n' <tour/step-00000005/heddle/optimizer.safetensors | grep -aq 't\.slow\.'
tap_result $? "which are in the checkpoint"

# -- doc/plugin-examples.md -----------------------------------------------------------------------------------------------------
page=$src/doc/plugin-examples.md
small() { # NAME SECTIONS
	block "$1.c" >"$1.c"
	ok "$1: built" "${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I"$src/include" -o "$1.so" "$1.c"
	{ sed '/^\[strategy/,$d' tour.ini && printf "$2"; } >"$1.ini"
}
trained() { # NAME ARGS...
	trained_as=$1
	shift
	rm -rf out numbers.jsonl
	ok "$trained_as: trains" heddle_mpi 2 train "$trained_as.ini" --set train.threads=1 --set train.eval_batches=1 --set log.metrics=numbers.jsonl \
		--set checkpoint.dir=out "$@"
}
small swap '[strategy t]\nplugin = ./swap.so\nsize = 2\n'
small thin '[strategy t]\nplugin = pp\nsize = 2\n[plugin h]\nfile = ./thin.so\n'
small mean_of '[strategy t]\nplugin = ./mean_of.so\nsize = 2\n'
sed 's|./swap.so|dp|' swap.ini >dp.ini
trained dp
losses numbers.jsonl >want
trained swap
is "swap: the losses of dp" "$(losses numbers.jsonl)" "$(cat want)"
heddle explain swap.ini --ranks 2 --nodes >nodes.txt
[ "$(grep -c '^sync  *comm shift on t grad:' nodes.txt)" -gt 10 ] && ! grep -q 'comm all-reduce on t grad:' nodes.txt
tap_result $? "swap: by shifts"
like "swap: of two" "$(heddle check swap.ini --ranks 4 --set t.size=4 2>&1)" 'size: 4 members, and a swap is between 2'
trained mean_of --set t.keep=0
is "mean_of: the losses of dp with keep=0" "$(losses numbers.jsonl)" "$(cat want)"
trained mean_of
[ "$(losses numbers.jsonl)" != "$(cat want)" ]
tap_result $? "mean_of: others without"
tr ',' '\n' <out/step-00000004/heddle/optimizer.safetensors | grep -aq 't\.mean\.wte\.weight'
tap_result $? "mean_of: its state is in the checkpoint"
ok "mean_of: trains what its serial definition says" heddle conform ./mean_of.so --only 'serial definition, gpt2: mean_of 2'
trained thin
losses numbers.jsonl >numbers.txt
# bf16 rounds by 2^-9 of an activation at most, so far less in a mean over 256 tokens.
ok "thin: the losses of dp, but for rounding" awk 'NR == FNR { w[$1] = $2; next } { d = $2 - w[$1]; if (d < 0) d = -d; if (!(d <= $2 / 512)) exit 1; n++ }
	END { if (n != 4) exit 1 }' want numbers.txt
page=$src/doc/plugin-reference.md

# members STRUCT HEADER: functions in it.
members() { sed -n "/^struct $1 {/,/^};/p" "$src/include/heddle/$2" | sed -n 's/^\t.*(\*\([a-z_]*\))(.*/\1/p'; }
missing=
for name in $(members hd_host host.h; members hd_graph_api graph.h; members hd_record_api op.h; members hd_strategy_ops strategy.h
	members hd_op op.h; members hd_kernel_ops kernel.h; members hd_kernel_prepare kernel.h; members hd_optimizer_ops optimizer.h
	members hd_serial serial.h; members hd_serial_ops serial.h); do
	grep -q "[\`.>]$name\b\|^## Slot $name\|\`$name(" "$page" || missing="$missing $name"
	grep -iq "\b$name\b\|hd_$name(" tour.c serial.c || [ "$name" = release ] || missing="$missing code:$name"
done
is "every function is in the page, and in its code" "$missing" ""
[ "$(members hd_graph_api graph.h | wc -l)" -gt 40 ]
tap_result $? "functions are found in the headers"
for name in $(sed -n 's/^static inline .*[ *]\(hd_[a-z_]*\)(.*/\1/p' "$src/include/heddle/host.h" "$src/include/heddle/graph.h"); do
	grep -q "\`$name(\|\`$name\`" "$page" || missing="$missing $name"
done
is "so is every short form" "$missing" ""

# The manual page names every slot and every table.
man=$src/man/heddle-plugin.7
for name in $(members hd_strategy_ops strategy.h) strategy approximate serial kernels optimizer families build; do
	grep -qx "\.B $name" "$man" || missing="$missing $name"
done
is "heddle-plugin(7) has all slots and tables" "$missing" ""
if command -v man >/dev/null && man --help 2>&1 | grep -q warnings; then
	is "and no faults" "$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$man" 2>&1 >/dev/null)" ""
else
	skip "no man"
fi
done_testing
