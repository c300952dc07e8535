#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A hybrid run that was stopped and resumed equals, to the bit, one that was never stopped. It saves the same tensors as
# one rank, and a different layout can resume from them. Otherwise a run would be tied to the machine that it began on.
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

# alike A B FROM: after step FROM both runs have the same losses up to rounding.
alike() {
	after "$1" "$3" >.a
	after "$2" "$3" >.b
	[ -s .a ] && [ "$(wc -l <.a)" -eq "$(wc -l <.b)" ] && join .a .b |
		awk '{ d = $2 - $4; if (d < 0) d = -d; print; if (!(d <= 1e-5 * $2)) bad = 1 } END { exit bad }'
}
# close A B: all weights are equal up to rounding. Only for SGD: AdamW divides each gradient by its size, so one that is
# only rounding error changes a weight by a full step.
close() {
	for f in "$1" "$2"; do
		od -An -v -t f4 -w4 -j $(($(od -An -t u8 -N 8 "$f") + 8)) "$f" >".values$(basename "$(dirname "$(dirname "$f")")")"
	done
	paste .values* | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= most)) most = d } NF != 2 { bad = 1 }
		END { print "largest difference " most " of " NR; exit bad || !NR || !(most <= 1e-6) }'
}

# hybrid NAME N INI ONE [args...]: trains a hybrid straight and resumed; ONE is the run of one rank.
hybrid() {
	what=$1 n=$2 ini=$3 one=$4
	shift 4
	ok "$what: it trains without a stop" train "$what" "$n" "$ini" "$@"
	ok "$what: it resumes from step 2" \
		train "$what-rest" "$n" "$ini" "$@" --set "checkpoint.resume=$what/step-00000002"
	is "$what: the resumed run takes two more steps" \
		"$(numbers "$what-rest.jsonl" | cut -d' ' -f1 | tr '\n' ' ')" "3 4 "
	is "$what: the losses and norms are the same" "$(numbers "$what-rest.jsonl")" "$(after "$what.jsonl" 2)"
	ok "$what: the saved files are the same, bit by bit" same "$what/step-00000004" "$what-rest/step-00000004"
	is "$what: the checkpoint has the files of one rank" \
		"$(cd "$what/step-00000004" && find . | sort)" "$(cd "$one/step-00000004" && find . | sort)"
	is "$what: the weights have the names, shapes and types of one rank" \
		"$(header "$what/step-00000004/model.safetensors")" \
		"$(header "$one/step-00000004/model.safetensors")"
	is "$what: ... and so have the optimizer's states" \
		"$(header "$what/step-00000004/heddle/optimizer.safetensors")" \
		"$(header "$one/step-00000004/heddle/optimizer.safetensors")"
	ok "$what: the losses equal those of one rank" alike "$what.jsonl" "$one.jsonl" 0
}
moe="--set model.experts=4"
sgd="--set train.optimizer=sgd"
ok "one rank trains" train one 1 one
ok "one rank trains with experts" train one-moe 1 one $moe
hybrid tp+dp+pp 8 tp+dp+pp one --set train.micro_batch=1
ok "one rank trains with SGD" train one-sgd 1 one $sgd
hybrid recompute 4 interleaved one-sgd $sgd --set train.recompute=full --set train.micro_batch=1
ok "recompute: the weights equal those of one rank" \
	close recompute/step-00000004/model.safetensors one-sgd/step-00000004/model.safetensors
hybrid ep+dp 4 ep+dp one-moe $moe

# go_on NAME N INI FROM [args...]: resumes from the checkpoint of a different layout.
go_on() {
	to=$1 n=$2 ini=$3 from=$4
	shift 4
	ok "$ini resumes from a checkpoint of $from" \
		train "$to" "$n" "$ini" "$@" --set "checkpoint.resume=$from/step-00000002"
	ok "$ini resumes from a checkpoint of $from: the losses are the same" alike "$to.jsonl" "$from.jsonl" 2
}
go_on a 1 one recompute $sgd
go_on b 2 dp tp+dp+pp
go_on c 4 interleaved one --set train.micro_batch=1
go_on d 4 ep+tp ep+dp $moe
done_testing
