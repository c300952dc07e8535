#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle tokenize.  A corpus that is cut inside its documents, or that lacks what came after a stop, would silently
# train a different model than intended.
. "${0%/*}/lib/tap.sh"
heddle=$build/heddle
tokenizer=$src/t/data/tokenizers/llama3
cd "$tmp" || exit 1

tokenize() { "$heddle" tokenize --tokenizer "$tokenizer" "$@"; }
ids_of() { od -An -v -tu2 -w2 "$1" | tr -d ' '; }
one_a_line() { tr ' ' '\n'; }
refusal() { tokenize "$@" 2>&1 >/dev/null | grep '^heddle: '; }

# -- three documents, in every form -------------------------------------------------------------------------------------------
printf 'The first,\nof two lines.\n' >1.txt
printf 'Zweites: f\303\274nf  \t' >2.txt
printf '"third" \\ \360\237\230\200' >3.txt
cat >all.jsonl <<'END'
{"id": 1, "text": "The first,\nof two lines.\n", "body": "x"}

{"text": "Zweites: f\u00fcnf  \t"}
{"text": "\"third\" \\ \ud83d\ude00", "id": 3}
END
for i in 1 2 3; do
	tokenize --ids $i.txt | one_a_line
done >want
tokenize --out text 1.txt 2.txt 3.txt >text.out 2>text.err
is "text files: the ids of the documents follow one another" "$(ids_of text.bin)" "$(cat want)"
is "... and a line says what was written" \
	"$(cat text.out)" "text.bin: 3 documents, $(wc -l <want | tr -d ' ') tokens, vocab 454"
like "... with progress" "$(cat text.err)" '^tokenize: 0.0 of 0.0 MB, 3 documents, [0-9]* tokens'
tokenize --out lines all.jsonl >/dev/null 2>&1
ok "JSONL has a document on each line" cmp text.bin lines.bin
ok "... with the same index" cmp text.idx lines.idx
is "the index has a header, three lengths, three offsets and four boundaries" \
	"$(wc -c <lines.idx | tr -d ' ')" $((34 + 3 * 12 + 4 * 8))
is "... the lengths are those of the documents" "$(od -An -td4 -j34 -N12 lines.idx | xargs)" \
	"$(for i in 1 2 3; do tokenize --ids $i.txt | wc -w; done | xargs)"
{ printf '\357\273\277' && cat all.jsonl; } >marked.jsonl
tokenize --out marked marked.jsonl >/dev/null 2>&1
ok "JSONL may begin with a byte order mark" cmp marked.bin lines.bin
printf '\357\273\277\n{"text": "\357\273\277a"}\n' >mark.jsonl && printf '\357\273\277a' >mark.txt
tokenize --out mark mark.jsonl >/dev/null 2>&1
is "... alone on its line; one in a text belongs to the text" "$(ids_of mark.bin | xargs)" "$(tokenize --ids mark.txt)"
gzip -k all.jsonl && cat all.jsonl.gz all.jsonl.gz >twice.jsonl.gz
tokenize --out packed all.jsonl.gz >/dev/null 2>&1
ok "gzip is decompressed" cmp packed.idx lines.idx
tokenize --out twice twice.jsonl.gz >/dev/null 2>&1
is "... also with two members" "$(ids_of twice.bin)" "$(cat want want)"
if command -v zstd >/dev/null; then
	zstd -q all.jsonl
	tokenize --out zst all.jsonl.zst >/dev/null 2>&1
	ok "zstd is decompressed" cmp zst.bin lines.bin
	{ printf '\120\052\115\030\004\000\000\000abcd' && cat all.jsonl.zst; } >skipped.jsonl.zst
	tokenize --out skipped skipped.jsonl.zst >/dev/null 2>&1
	ok "... also after a frame that is skipped, with which files of pzstd begin" cmp skipped.bin lines.bin
	zstd -q --long=28 <all.jsonl >long.jsonl.zst
	like "a window of more than 128 MB is refused, with the command that decompresses such a file" \
		"$(tokenize --out long long.jsonl.zst 2>&1)" 'long\.jsonl\.zst: cannot be decompressed.*; zstd -d --long=31 decompresses it$'
else
	skip "no zstd"
	skip "no zstd"
	skip "no zstd"
fi
mkdir -p dir/b && cp 2.txt dir/b && cp 1.txt dir/a.txt && cp 3.txt dir/c.txt && cp 3.txt dir/.hidden
tokenize --out dir-out dir >/dev/null 2>&1
ok "a directory is read in the order of names" cmp dir-out.bin text.bin
tokenize --out glob '[123].t*' >/dev/null 2>&1
ok "a pattern is expanded" cmp glob.bin text.bin
is "a line without the given field is refused" "$(tokenize --out body --field body all.jsonl 2>&1 | grep ^heddle)" \
	"heddle: all.jsonl:3: has no field body; it has: text"
tokenize --out ends --append-eos yes 1.txt 2.txt >/dev/null 2>&1
is "--append-eos puts a token after each document" "$(ids_of ends.bin | grep -c '^450$')" 2
mkdir eos && cp "$tokenizer/tokenizer.json" eos
of_eos() { "$heddle" tokenize --tokenizer eos --out eos-out --append-eos yes 1.txt 2>&1 >/dev/null | grep '^heddle: '; }
echo '{"eos_token": "<|none|>"}' >eos/tokenizer_config.json
is "an eos_token that is not in the vocabulary is refused" "$(of_eos)" \
	"heddle: eos/tokenizer_config.json: eos_token is <|none|>, which is not in the vocabulary of eos/tokenizer.json"
rm eos/tokenizer_config.json
is "an end token that no file names is chosen with a message" "$(of_eos)" \
	"heddle: tokenize: no file next to eos/tokenizer.json has eos_token; <|endoftext|>, id 450, is appended to each document"
tokenize --text want >back
is "--text prints the text of ids" "$(cat back)" "$(cat 1.txt 2.txt 3.txt)"

# -- a run that is stopped
# -------------------------------------------------------------------------------------------------------------------
awk 'BEGIN { for (i = 0; i < 60000; i++) printf "{\"text\": \"line %d of a long file, %d\"}\n", i, i * i }' >long.jsonl
export OMP_NUM_THREADS=2
tokenize --out long long.jsonl >/dev/null 2>&1
export OMP_NUM_THREADS=1
(ulimit -f 4000; tokenize --out cut long.jsonl 1.txt) >/dev/null 2>&1
[ -s cut.part.json ] && [ ! -e cut.bin ]
tap_result $? "a run that was stopped leaves its parts, and no file that looks whole"
is "other files do not continue it" "$(refusal --out cut long.jsonl)" \
	"heddle: cut.part.json: was begun with different files, options or a different tokenizer; remove it to start again"
touch -r long.jsonl time && touch -d "$(date -r long.jsonl '+%F %T').$(date -r long.jsonl +%N | tr 0-9 1-90)" long.jsonl
is "... nor do files that were written again within the second" "$(refusal --out cut long.jsonl 1.txt)" \
	"heddle: cut.part.json: was begun with different files, options or a different tokenizer; remove it to start again"
touch -r time long.jsonl
cp cut.part.json saved.json
like "the same files continue it" \
	"$(tokenize --out cut long.jsonl 1.txt 2>&1)" '^heddle: cut: continuing after [1-9][0-9]* documents'
cat long.bin >want.bin && tokenize --out first 1.txt >/dev/null 2>&1 && cat first.bin >>want.bin
ok "... to the same ids, whatever the number of threads" cmp want.bin cut.bin
is "... and leave no parts" "$(ls cut.part* 2>/dev/null)" ""

# -- two runs at once
# -------------------------------------------------------------------------------------------------------------------
for i in 1 2 3 4 5 6 7 8 9 10; do cat long.jsonl; done >longer.jsonl
"$heddle" tokenize --tokenizer "$tokenizer" --out both longer.jsonl >/dev/null 2>both.err &
first=$!
for i in $(seq 100); do [ -s both.part.json ] && break || sleep 0.05; done
kill -STOP $first
like "a second run with the same --out is refused" "$(refusal --out both 1.txt)" \
	'^heddle: both\.part\.bin: another process is writing it; wait until it ends, or give another prefix$'
kill -CONT $first
ok "... and the first goes on" wait $first
is "... to the ids of its text" "$(wc -c <both.bin | tr -d ' ')" "$((10 * $(wc -c <long.bin)))"

# -- files that are not text
# ----------------------------------------------------------------------------------------------------------
printf '\223NUMPY\001\000' >x.npy
like "an array of numpy is refused" "$(refusal --out x x.npy)" 'x.npy: is an array of numpy \(.npy\); tokenize takes'
printf 'a\000b' >x.dat
like "a zero byte is refused" \
	"$(refusal --out y x.dat)" 'x.dat: is not text: its byte at offset 1 is 0; tokenize takes text'
like "... by --ids too" "$(refusal --ids x.dat)" 'x.dat: is not text: its byte at offset 1 is 0'
{ yes 'a few words of text' | head -c 300000; printf '\000'; } >late.txt
printf '[model]\nlayers = 1\nembed = 8\nheads = 2\n[data]\ntrain = late.txt\n[train]\nseq = 8\nglobal_batch = 1\nsteps = 1\n' >late.ini
export XDG_CACHE_HOME="$tmp/cache"
like "a late zero byte is refused" "$(refusal --out y late.txt)" 'late.txt: is not text: its byte at offset 300000 is 0'
like "... by --ids of that file too" "$(refusal --ids late.txt)" 'late.txt: is not text: its byte at offset 300000 is 0'
like "... by check, which names the key for bytes" \
	"$("$heddle" check late.ini 2>&1)" 'late.txt: is not text: its byte at offset 300000 is 0; \[data\] tokenizer = byte'
ok "... with which check accepts them" "$heddle" check late.ini --set data.tokenizer=byte

# -- text that is not UTF-8
# --------------------------------------------------------------------------------------------------------- As with
# Python's errors="replace", each maximal piece becomes one U+FFFD.
printf 'caf\351 and \360\237\230 x\n' >bad.txt
printf 'caf\357\277\275 and \357\277\275 x\n' >good.txt
printf '{"text": "caf\351 and \360\237\230 x\\n"}\n' >bad.jsonl
printf '{"text": "caf\\ud83d and \\uDC00 x\\n"}\n' >half.jsonl
printf '{"text": "\\\\ud800 \\ud83d\\ude00"}\n' >whole.jsonl
tokenize --out good good.txt 2>err
is "valid text: no warning" "$(grep -c ^heddle err)" 0
for what in 'bad.txt: 4 of 15 (27%)' 'bad.jsonl: 4 of 29 (14%)' 'half.jsonl: 12 of 37 (32%)'; do
	file=${what%%:*}
	is "$file: one warning, with the count" "$(tokenize --out bad $file 2>&1 >/dev/null | grep ^heddle)" \
		"heddle: $file: bytes that are not valid UTF-8 count as U+FFFD:${what#*:}; iconv converts text from other encodings"
	ok "... and the ids of U+FFFD" cmp bad.bin good.bin
done
is "a complete pair, and a backslash before u, give no warning" \
	"$(tokenize --out whole whole.jsonl 2>&1 >/dev/null | grep -c ^heddle)" 0
printf '\\ud800 \360\237\230\200' >whole.txt
tokenize --out good whole.txt 2>/dev/null
ok "... and stay as they are" cmp whole.bin good.bin
is "--ids: the same warning" "$(refusal --ids bad.txt)" \
	"heddle: bad.txt: bytes that are not valid UTF-8 count as U+FFFD: 4 of 15 (27%); iconv converts text from other encodings"
is "of several files, those with such bytes give a warning" \
	"$(tokenize --out bad good.txt bad.txt 1.txt half.jsonl 2>&1 >/dev/null | grep -c '^heddle: \(bad.txt\|half.jsonl\): bytes that')" 2
yes "$(cat bad.txt)" | head -1000 >many.txt
for verb in check train train; do
	is "$verb: one warning, even if the ids exist already" \
		"$("$heddle" $verb late.ini --set data.train=many.txt --set data.tokenizer="$tokenizer" 2>&1 |
		grep -c '^heddle: many.txt: bytes that are not valid UTF-8 count as U+FFFD: 4000 of 15000 (27%)')" 1
done
yes '{"text": "caf\ud800"}' | head -60000 >long-bad.jsonl
(ulimit -f 400; OMP_NUM_THREADS=1 tokenize --out stopped bad.txt long-bad.jsonl) >/dev/null 2>&1
[ -s stopped.part.json ]
tap_result $? "a run is stopped among such bytes"
OMP_NUM_THREADS=1 tokenize --out stopped bad.txt long-bad.jsonl >/dev/null 2>err
like "... it continues" "$(cat err)" 'stopped: continuing after [1-9]'
is "... and counts all of them" \
	"$(grep -o 'U+FFFD: [0-9]* of [0-9]*' err | tr '\n' ' ')" "U+FFFD: 4 of 15 U+FFFD: 360000 of $(wc -c <long-bad.jsonl | tr -d ' ') "
printf '{"text": "a"}\n{"text": \n' >bad.jsonl
like "a line that is not JSON is named" "$(refusal --out z bad.jsonl)" 'bad.jsonl:2: is not JSON'
printf '{"text": 5}\n' >number.jsonl
like "a field that is not text" "$(refusal --out v number.jsonl)" 'number.jsonl:1: the field text is not a string'
printf '{"id": %s, "text": "a NaN"}\n' 18446744073709551616 -1e5 NaN '[-Infinity, "\"NaN", {"a":Infinity}]' >odd.jsonl
for i in 1 2 3 4; do printf '{"text": "a NaN"}\n'; done >plain.jsonl
tokenize --out plain plain.jsonl >/dev/null 2>&1
ok "numbers beyond 64 bits, NaN and Infinity in other fields" tokenize --out odd odd.jsonl
ok "... change no text" cmp odd.bin plain.bin
printf '{"text": "a", "b": Infinit}\n' >constant.jsonl
like "a word that is no number of Python" "$(refusal --out v constant.jsonl)" 'constant.jsonl:1: is not JSON'
printf '{"text": NaN}\n' >nan.jsonl
like "NaN as the text" "$(refusal --out v nan.jsonl)" 'nan.jsonl:1: the field text is not a string'
head -c 60 all.jsonl.gz >short.jsonl.gz
printf '[1]\n' >array.jsonl
like "a line that is not an object" \
	"$(refusal --out v array.jsonl)" 'array.jsonl:1: is an array, not an object; each line must be an object,'
printf '[\n{"text": "a"}\n]\n' >array.json
like "an array in several lines" "$(refusal --out v array.json)" 'array.json:1: is an array, not an object; each line must be an object,'
printf '{\n"text": "a"\n}\n' >tall.json
like "an object in several lines" "$(refusal --out v tall.json)" 'tall.json:1: is not JSON: .*; each line must be an object$'
{ cat long.jsonl; echo '[1]'; } >late.jsonl
like "... after more lines than are read at once" \
	"$(refusal --out late late.jsonl)" '^heddle: late.jsonl:60001: is an array, not an object'
printf '{"a": 1, "b": 2}\n' >two.jsonl
like "an object without the field" "$(refusal --out v two.jsonl)" 'two.jsonl:1: has no field text; it has: a, b'
mkdir none && : >nothing.txt
like "a directory without files" "$(refusal --out v none)" 'none: the directory has no files'
like "a device" "$(refusal --out v /dev/null)" '/dev/null: neither a file nor a directory'
like "an empty file" "$(refusal --out v nothing.txt)" 'nothing.txt: they contain no text'
printf '{"text": ""}\n' >blank.jsonl
like "documents without text" "$(refusal --out v blank.jsonl)" 'blank.jsonl: they contain no text'
is "a run without documents leaves no parts" "$(ls v.part* 2>/dev/null)" ""
ok "... and the next run may have other files" tokenize --out v 1.txt
for word in x 5x -1; do
	echo "5 $word" >ids
	like "$word as an id" "$(refusal --text ids)" "^heddle: ids: .*$word"
done
like "an --append-eos that is neither yes nor no" "$(refusal --out v --append-eos maybe 1.txt)" 'append-eos: .*maybe'
like "an empty name of the output" "$(refusal --out '' 1.txt)" '--out'
like "no file of input" "$(refusal --out v)" 'tokenize: which files\?'
cp all.jsonl all.ndjson
tokenize --out nd all.ndjson >/dev/null 2>&1
ok "a name in .ndjson is JSONL too" cmp nd.bin lines.bin
printf '{"text": "a"}' >open.jsonl
like "a last line without a newline is read" "$(tokenize --out open open.jsonl 2>&1)" '^open.bin: 1 document'
printf '{"messages": [{"role": "user", "content": "a"}]}\n' >chat.jsonl
like "a chat is refused, with the way to convert it" \
	"$(refusal --out v chat.jsonl)" 'no field text; it has: messages\. Convert conversations .*apply_chat_template'
like "a file that ends too early" "$(refusal --out w short.jsonl.gz)" 'short.jsonl.gz: cannot be decompressed after byte'
like "an id that no token has" "$(echo 5 999 >ids; refusal --text ids)" 'id 999 at position 2 is not in a vocabulary of 454'
like "a pattern that matches no file" "$(refusal --out u '*.none')" '\*.none: no file matches'
like "--out together with --ids" "$(refusal --out u --ids 1.txt)" 'one of --out PREFIX FILE'
done_testing
