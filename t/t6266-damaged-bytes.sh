#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A single bit of a checkpoint that a disk or a copy has changed is noticed before a run resumes from it, in every
# layout. Without checksums the run would train a different model, or fail step after step without saying why.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v python3 >/dev/null || skip_all 'no python3'

flip() { python3 - "$1" <<'E'
import sys
path = sys.argv[1]
b = bytearray(open(path, 'rb').read())
b[-4001] ^= 1
open(path, 'wb').write(b)
E
}
saved() { # DIR RANKS SETS...: trains two steps and saves gradients too
	dir=$1 n=$2
	shift 2
	heddle_mpi "$n" train tiny.ini --set train.steps=2 --set checkpoint.dir="$dir" --set checkpoint.gradients=yes "$@" >out 2>&1
}
goes_on() { # DIR: trains one more step on one rank
	heddle train tiny.ini --set dp.size=1 --set train.steps=3 --set checkpoint.dir="$1" --set checkpoint.resume=auto 2>&1
}

for case in 'one 1 --set=dp.size=1' 'replicas 2 --set=dp.zero=1' 'beside 2 --set=dp.zero=3 --set=checkpoint.async=yes' \
	'rows 2 --set=dp.size=1 --set=tp.plugin=tp --set=tp.size=2' 'stages 2 --set=dp.size=1 --set=pp.plugin=pp --set=pp.size=2'; do
	set -- $case
	[ "$2" = 1 ] || command -v mpirun >/dev/null || continue
	dir=$1 n=$2
	shift 2
	ok "$dir: two steps are saved" saved "$dir" "$n" "$@"
	for file in model heddle/optimizer heddle/gradients; do
		cp -r "$dir" "$dir.bad"
		flip "$dir.bad/step-00000002/$file.safetensors"
		said=$(goes_on "$dir.bad")
		is "$dir: a changed bit of $file is refused" $? 1
		ok "$dir: ... and the message names $file" \
			sh -c 'case $1 in *"$2.safetensors: its bytes have changed since they were saved"*) ;; *) echo "$1"; exit 1;; esac' \
			- "$said" "$file"
		rm -rf "$dir.bad"
	done
	goes_on "$dir" >out
	is "$dir: without a changed bit the run resumes" $? 0
done

cp -r one bad
flip bad/step-00000003/model.safetensors
for reader in 'generate bad --prompt x --tokens 1' 'train tiny.ini --set dp.size=1 --set train.steps=1 --set model.load=bad'; do
	ok "${reader%% *} reads weights with a changed bit" heddle $reader
	is "... and ${reader%% *} prints one warning" \
		"$(grep -c '^heddle: bad/step-00000003/model.safetensors: its bytes have changed since they were saved' .ok)" 1
done
rm bad/step-00000003/heddle/sums.json
heddle train tiny.ini --set dp.size=1 --set train.steps=4 --set checkpoint.dir=bad --set checkpoint.resume=auto >out 2>&1
is "a checkpoint without checksums is read as it is" $? 0
echo '[' >one/step-00000003/heddle/sums.json
said=$(heddle train tiny.ini --set dp.size=1 --set train.steps=4 --set checkpoint.dir=one --set checkpoint.resume=auto 2>&1)
is "a damaged file of checksums is refused" $? 1
done_testing
