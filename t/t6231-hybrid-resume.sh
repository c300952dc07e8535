#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A hybrid that was stopped and goes on is the hybrid that was not stopped, to the bit; what it saves is what one rank
# saves, tensor by tensor; and another layout can go on with it. Otherwise a run is tied to the machine that it began on.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/resumed.sh"

sed '/^\[strategy/,$d' tiny.ini | sed 's/^steps.*/steps = 4/; s/^layers.*/layers = 4/' >model.ini
printf '[checkpoint]\nevery = 2\nkeep = 3\n' >>model.ini
layout() {			# NAME PLUGIN SIZE [KEYS]...
	name=$1
	shift
	cp model.ini "$name.ini"
	while [ $# -gt 0 ]; do
		printf '[strategy %s]\nplugin = %s\nsize = %s\n%b' "$1" "$1" "$2" "$3" >>"$name.ini"
		shift 3
	done
}
layout tp+dp+pp tp 2 '' dp 2 '' pp 2 'schedule = 1f1b\n'
layout interleaved tp 2 '' pp 2 'schedule = interleaved\nchunks = 2\n'
layout ep+dp ep 2 '' dp 2 ''
layout ep+tp ep 2 '' tp 2 ''
layout dp dp 2 ''
cp model.ini one.ini

# alike A B FROM: from step FROM on the same losses to rounding.
alike() {
	after "$1" "$3" >.a
	after "$2" "$3" >.b
	[ -s .a ] && [ "$(wc -l <.a)" -eq "$(wc -l <.b)" ] && join .a .b |
		awk '{ d = $2 - $4; if (d < 0) d = -d; print; if (!(d <= 1e-5 * $2)) bad = 1 } END { exit bad }'
}
# close A B: all weights equal to rounding. Of SGD: AdamW divides a gradient that is nothing but rounding by its size.
close() {
	for f in "$1" "$2"; do
		od -An -v -t f4 -w4 -j $(($(od -An -t u8 -N 8 "$f") + 8)) "$f" >".values$(basename "$(dirname "$(dirname "$f")")")"
	done
	paste .values* | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= most)) most = d } NF != 2 { bad = 1 }
		END { print "largest difference " most " of " NR; exit bad || !NR || !(most <= 1e-6) }'
}

# hybrid NAME N INI ONE [args...]: ONE is the run of one rank.
hybrid() {
	what=$1 n=$2 ini=$3 one=$4
	shift 4
	ok "$what: straight" train "$what" "$n" "$ini" "$@"
	ok "$what: resumed" train "$what-rest" "$n" "$ini" "$@" --set "checkpoint.resume=$what/step-00000002"
	is "$what: two more steps" "$(numbers "$what-rest.jsonl" | cut -d' ' -f1 | tr '\n' ' ')" "3 4 "
	is "$what: the same losses and norms" "$(numbers "$what-rest.jsonl")" "$(after "$what.jsonl" 2)"
	ok "$what: the same files, bit by bit" same "$what/step-00000004" "$what-rest/step-00000004"
	is "$what: the files of one rank" "$(cd "$what/step-00000004" && find . | sort)" "$(cd "$one/step-00000004" && find . | sort)"
	is "$what: names, shapes and types of one rank" "$(header "$what/step-00000004/model.safetensors")" \
		"$(header "$one/step-00000004/model.safetensors")"
	is "$what: of the optimizer too" "$(header "$what/step-00000004/heddle/optimizer.safetensors")" \
		"$(header "$one/step-00000004/heddle/optimizer.safetensors")"
	ok "$what: the losses of one rank" alike "$what.jsonl" "$one.jsonl" 0
}
moe="--set model.experts=4"
sgd="--set train.optimizer=sgd"
ok "one rank" train one 1 one
ok "one rank, experts" train one-moe 1 one $moe
hybrid tp+dp+pp 8 tp+dp+pp one --set train.micro_batch=1
ok "one rank, SGD" train one-sgd 1 one $sgd
hybrid recompute 4 interleaved one-sgd $sgd --set train.recompute=full --set train.micro_batch=1
ok "recompute: the weights of one rank" close recompute/step-00000004/model.safetensors one-sgd/step-00000004/model.safetensors
hybrid ep+dp 4 ep+dp one-moe $moe

# go_on NAME N INI FROM [args...]: with the checkpoint of another layout.
go_on() {
	to=$1 n=$2 ini=$3 from=$4
	shift 4
	ok "$from goes on as $ini" train "$to" "$n" "$ini" "$@" --set "checkpoint.resume=$from/step-00000002"
	ok "$from goes on as $ini: the same losses" alike "$to.jsonl" "$from.jsonl" 2
}
go_on a 1 one recompute $sgd
go_on b 2 dp tp+dp+pp
go_on c 4 interleaved one --set train.micro_batch=1
go_on d 4 ep+tp ep+dp $moe
done_testing
