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
change() { # FILE PYTHON: changes the bytearray b of a file
	python3 -c 'import sys
b = bytearray(open(sys.argv[1], "rb").read())
exec(sys.argv[2])
open(sys.argv[1], "wb").write(b)' "$1" "$2"
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

# A changed bit of the INI can change what eval computes: other windows, another base of rotary positions.  Users edit these
# texts, so it is no error.
for file in heddle/conf.ini config.json; do
	rm -rf bad
	cp -r one bad
	change "bad/step-00000003/$file" 'b[:] = b.replace(b"\nseq = 32", b"\nseq = 22").replace(b"gelu_new", b"gelu_neu")'
	for reader in 'eval bad --data text.txt' 'train tiny.ini --set dp.size=1 --set train.steps=3 --set checkpoint.dir=bad --set checkpoint.resume=auto'; do
		ok "${reader%% *} reads a checkpoint whose $file has changed" heddle $reader
		is "... and ${reader%% *} prints one warning" \
			"$(grep -c "^heddle: bad/step-00000003/$file: its bytes have changed since they were saved" .ok)" 1
	done
done
ok "eval reads a checkpoint as it was saved" heddle eval one --data text.txt
unlike "... without a warning" "$(cat .ok)" 'have changed'

# The sums of earlier checkpoints had 64 bits, and no header and no state.json.
earlier() { python3 - "$1" <<'E'
import json, struct, sys
sums = {}
for name in ('model.safetensors', 'heddle/optimizer.safetensors'):
    b = open(sys.argv[1] + '/' + name, 'rb').read()
    at = 8 + struct.unpack('<Q', b[:8])[0]
    b += bytes(-len(b) % 8)
    s = 0
    for w in range(at // 8, len(b) // 8):
        x = (w + 1) * 0x9e3779b97f4a7c15 % 2 ** 64
        s += struct.unpack_from('<Q', b, 8 * w)[0] * ((x ^ x >> 32) | 1)
    sums[name] = '%016x' % (s % 2 ** 64)
json.dump(sums, open(sys.argv[1] + '/heddle/sums.json', 'w'))
E
}
cp -r one old
earlier old/step-00000003
flip old/step-00000003/model.safetensors
said=$(goes_on old)
is "a changed bit is refused with the sums of earlier checkpoints" $? 1
like "... and named" "$said" '^heddle: old/step-00000003/model.safetensors: its bytes have changed since they were saved'
flip old/step-00000003/model.safetensors
ok "an earlier checkpoint without a changed bit resumes" goes_on old

refuses() { # NAME FILE PYTHON PATTERN: a run does not resume from a copy of one, changed by the lines
	rm -rf worse
	cp -r one worse
	change "worse/step-00000003/$2" "$3"
	said=$(goes_on worse)
	is "$1: refused" $? 1
	like "$1: the message says why" "$said" "^heddle: worse/step-00000003/$4"
}
refuses "the highest bits of two words" model.safetensors 'n = 8 + int.from_bytes(b[:8], "little")
b[n + 7] ^= 128; b[n + 23] ^= 128' 'model.safetensors: its bytes have changed since they were saved'
refuses "a header with two names exchanged" heddle/optimizer.safetensors \
	'm, v = b"\"h.0.mlp.fc.bias.m\"", b"\"h.0.mlp.fc.bias.v\""
b[:] = b.replace(m, b"@", 1).replace(v, m, 1).replace(b"@", v, 1)' \
	'heddle/optimizer.safetensors: its bytes have changed since they were saved'
refuses "another number of samples" heddle/state.json 'b[:] = b.replace(b"\"samples\": 24", b"\"samples\": 25")' \
	'heddle/state.json: its bytes have changed since they were saved'
for text in '' '{}' '{"version": 2, "files": {}}' '{"model.safetensors": 1}' '{"version": 2, "files": {"a": "0"}, "texts": {"b": 0}}'; do
	refuses "the list '$text'" heddle/sums.json "b[:] = b'$text'" \
		'heddle/sums.json: is not a JSON object of files and checksums. Remove it'
done
refuses "the list of a later version" heddle/sums.json 'b[:] = b"{\"version\": 3}"' \
	'heddle/sums.json: is version 3; this program reads version 2'
for name in model.safetensors heddle/optimizer.safetensors heddle/state.json; do
	refuses "a list without $name" heddle/sums.json "import json
o = json.loads(b)
del o['files']['$name']
b[:] = json.dumps(o).encode()" "heddle/sums.json: has no checksum of $name, so that file may have changed. Remove"
done
refuses "a text outside of the checkpoint" heddle/sums.json 'import json
o = json.loads(b)
o["texts"]["../../text.txt"] = "0"
b[:] = json.dumps(o).encode()' '../../text.txt: '
rm bad/step-00000003/heddle/sums.json
heddle train tiny.ini --set dp.size=1 --set train.steps=4 --set checkpoint.dir=bad --set checkpoint.resume=auto >out 2>&1
is "a checkpoint without checksums is read as it is" $? 0
echo '[' >one/step-00000003/heddle/sums.json
said=$(heddle train tiny.ini --set dp.size=1 --set train.steps=4 --set checkpoint.dir=one --set checkpoint.resume=auto 2>&1)
is "a damaged file of checksums is refused" $? 1
done_testing
