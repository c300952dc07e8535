#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One long text: its ids are those of the whole, though it is cut and encoded piece by piece, in bounded memory.  A cut through a
# word, or in a run of newlines, gives other tokens there, and no loss shows it.
. "${0%/*}/lib/tap.sh"
heddle() { "$build/heddle" "$@"; }
cd "$tmp" || exit 1
export OMP_NUM_THREADS=2

# Lines that end in words, blanks, points and nothing; runs of newlines; letters beyond ASCII; the words of mixed.txt between.
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
for kind in gpt2 llama3 llama2 gemma; do
	tokenizer=$src/t/data/tokenizers/$kind
	heddle tokenize --tokenizer "$tokenizer" --ids text.txt | tr ' ' '\n' >whole
	heddle tokenize --tokenizer "$tokenizer" --out cut-$kind text.txt 2>err || tap_comment <err
	ids cut-$kind.bin >pieces
	ok "$kind: the ids are those of the whole" cmp whole pieces
	# boundaries of documents: the text is one
	is "$kind: one document" "$(od -An -t u8 -j 18 -N 8 cut-$kind.idx | tr -d ' ')" 1
	is "$kind: of all tokens" "$(od -An -t d4 -j 34 -N 4 cut-$kind.idx | tr -d ' ')" "$(wc -l <whole | tr -d ' ')"
done

# Two texts: the token that ends one stands behind each, not behind each piece.
heddle tokenize --tokenizer "$src/t/data/tokenizers/llama3" --append-eos yes --out two text.txt text.txt 2>err || tap_comment <err
is "two texts end twice" "$(ids two.bin | grep -c '^450$')" "$((2 + 2 * $(ids cut-llama3.bin | grep -c '^450$')))"
is "two documents" "$(od -An -t u8 -j 18 -N 8 two.idx | tr -d ' ')" 2

# Memory: of 24 MB no more than of 3; a text that stays whole (llama2 puts something before every text) would take it all.
for i in 1 2 3 4 5 6 7 8; do cat text.txt; done >long.txt
peak() { (ulimit -d "$1" && heddle tokenize --tokenizer "$src/t/data/tokenizers/llama3" --out out-$1-$2 $2.txt) >err 2>&1; }
limit=30000
while ! peak $limit text && [ $limit -lt 400000 ]; do limit=$((limit + 10000)); done
ok "24 MB in the $limit KB that 3 MB need, and 10 MB" peak $((limit + 10000)) long
done_testing
