#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One long text: its ids must be those of the complete text, although it is cut and encoded in pieces, in bounded
# memory.  A cut through a word, or in a run of newlines, would give other tokens there, and no loss would show it.
. "${0%/*}/lib/tap.sh"
heddle() { "$build/heddle" "$@"; }
cd "$tmp" || exit 1
export OMP_NUM_THREADS=2

# Lines that end in words, blanks, full stops and nothing; runs of newlines; letters beyond ASCII; the words of
# mixed.txt between.
tr -d '\000' <"$src/t/data/tokenizers/mixed.txt" >mixed.txt
awk -v mixed=mixed.txt 'BEGIN {
	while ((getline line < mixed) > 0) kept[n++] = line
	split("word  .  (3.14)  Fünf  \t  日本  \047ll  i==1;  x  -- ", w, "  ")
	for (x = 1; bytes < 3000000; i++) {
		line = i % 40 ? "" : kept[int(i / 40) % n]
		for (k = x % 13; k > 0; k--) { x = x * 16807 % 2147483647; line = line (k % 3 ? " " : "") w[x % 10 + 1] }
		x = x * 16807 % 2147483647
		line = line (x % 7 ? "\n" : x % 5 ? " \n" : "\n\n\n")
		bytes += length(line)
		printf "%s", line
	}
}' >text.txt

ids() { od -An -v -t u2 -w2 "$1" | tr -d ' '; }
for kind in gpt2 llama3 llama2 $(whole_sweep && echo roberta characters mistral gemma); do
	tokenizer=$src/t/data/tokenizers/$kind
	heddle tokenize --tokenizer "$tokenizer" --ids text.txt | tr ' ' '\n' >whole
	heddle tokenize --tokenizer "$tokenizer" --out cut-$kind text.txt 2>err || tap_comment <err
	ids cut-$kind.bin >pieces
	ok "$kind: the ids are those of the complete text" cmp whole pieces
	# the boundaries of documents: the text is one document
	is "$kind: one document" "$(od -An -t u8 -j 18 -N 8 cut-$kind.idx | tr -d ' ')" 1
	is "$kind: it has all tokens" \
		"$(od -An -t d4 -j 34 -N 4 cut-$kind.idx | tr -d ' ')" "$(wc -l <whole | tr -d ' ')"
done

# Two texts: the end token follows each text, not each piece.
heddle tokenize --tokenizer "$src/t/data/tokenizers/llama3" --append-eos yes --out two text.txt text.txt 2>err || tap_comment <err
is "two texts have two end tokens" \
	"$(ids two.bin | grep -c '^450$')" "$((2 + 2 * $(ids cut-llama3.bin | grep -c '^450$')))"
is "... and are two documents" "$(od -An -t u8 -j 18 -N 8 two.idx | tr -d ' ')" 2

# A line without an end, and lines without ASCII letters.
tr '\n' ' ' <text.txt | cut -c 1-2200000 | tr -d '\n' >line.txt
awk 'BEGIN { for (x = 1; bytes < 2200000; bytes += 30) { x = x * 16807 % 2147483647
	printf "%s%s", x % 3 ? "Ёлка и 12 сосен" : "東京は日本の首都です。", x % 5 ? "\n" : " " } }' >cyrillic.txt
# And a page without lines and blanks: it can be cut only between characters that are neighbours in no token.
awk 'BEGIN { for (x = 1; bytes < 2200000; bytes += 30) { x = x * 16807 % 2147483647
	printf "%s", x % 3 ? "東京は日本の首都です。" : x % 5 ? "人人生而自由" : "é́ﬁ<s>ñ" } }' >page.txt
for text in line cyrillic page; do
	for kind in gpt2 llama2 mistral gemma; do
		whole_sweep || [ $text-$kind = line-llama2 ] || [ $text-$kind = cyrillic-gpt2 ] || [ $text-$kind = page-mistral ] || continue
		[ $text = page ] || [ $kind = gpt2 ] || [ $kind = llama2 ] || continue
		tokenizer=$src/t/data/tokenizers/$kind
		heddle tokenize --tokenizer "$tokenizer" --ids $text.txt | tr ' ' '\n' >whole
		heddle tokenize --tokenizer "$tokenizer" --out $text-$kind $text.txt 2>err || tap_comment <err
		ids $text-$kind.bin >pieces
		ok "$text, $kind: the ids are those of the complete text" cmp whole pieces
	done
done

# Without words, a line alone does not show where to cut.  "\n" is merged with d, so e with c, so the next "\n" with f.
# A piece from d on would merge c with "\n", and leave f alone.  Such a text must not be cut.
mkdir whole-text
cat >whole-text/tokenizer.json <<'EOF'
{"model": {"type": "BPE", "vocab": {"\n": 0, "d": 1, "e": 2, "c": 3, "f": 4, "y": 5, "\nd": 6, "de": 7, "ec": 8, "c\n": 9, "\nf": 10, "\ny": 11},
 "merges": [["\n", "y"], ["\n", "d"], ["d", "e"], ["e", "c"], ["c", "\n"], ["\n", "f"]]}}
EOF
awk 'BEGIN { for (i = 0; i < 30000; i++) printf "y\ndec\nfy\n" }' >chain.txt
heddle tokenize --tokenizer whole-text --ids chain.txt | tr ' ' '\n' >whole
heddle tokenize --tokenizer whole-text --out chain chain.txt 2>err || tap_comment <err
ids chain.bin >pieces
ok "a text without words: the ids are those of the complete text" cmp whole pieces

# An added token of several words must not be cut at one of its blanks.
mkdir phrase
cat >phrase/tokenizer.json <<'EOF'
{"added_tokens": [{"id": 9, "content": "one two three four"}], "pre_tokenizer": {"type": "WhitespaceSplit"},
 "model": {"type": "BPE", "vocab": {"o": 0, "n": 1, "e": 2, "t": 3, "w": 4, "h": 5, "r": 6, "f": 7, "u": 8}, "merges": []}}
EOF
for ending in ' ' '\n'; do
	awk -v ending="$ending" 'BEGIN { for (i = 0; i < 30000; i++) printf "one two three four%s", ending }' >phrase.txt
	heddle tokenize --tokenizer phrase --ids phrase.txt | tr ' ' '\n' >whole
	heddle tokenize --tokenizer phrase --out phrase phrase.txt 2>err || tap_comment <err
	ids phrase.bin >pieces
	ok "an added token of four words: the ids are those of the complete text" cmp whole pieces
done

# Memory: six times the text needs no more than the text once, even where every text has a prefix (llama2).
peak() { (ulimit -d "$1" && heddle tokenize --tokenizer "$src/t/data/tokenizers/$2" --out "out-$1-$2" "$3.txt") >err 2>&1; }
export OMP_NUM_THREADS=1
for what in llama3:text llama2:line $(whole_sweep && echo llama2:text gpt2:cyrillic llama2:cyrillic llama2:page gemma:page); do
	kind=${what%:*} text=${what#*:}
	for i in 1 2 3 4 5 6; do cat $text.txt; done >long.txt
	limit=30000
	while ! peak $limit $kind $text && [ $limit -lt 400000 ]; do limit=$((limit + 10000)); done
	ok "$kind: six times $text fits into the $limit KB that one needs, and 10 MB" peak $((limit + 10000)) $kind long
done
done_testing
