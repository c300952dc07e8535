#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sentences of pages, manual pages, help texts, messages and comments have at most 25 words, and none of the phrases
# that t/lib/english.pl refuses.  A sentence three times as long must be read three times.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1
command -v perl >/dev/null || skip_all "no perl"

for f in README.md CHANGELOG.md doc/*.md man/*.[1-8] kernels/README.md conf/*/README.md; do
	perl t/lib/english.pl "$f" >"$tmp/found"
	[ ! -s "$tmp/found" ]
	tap_result $? "$f" || tap_comment <"$tmp/found"
done

# The messages and comments of the program.
for folder in engine/* kernels/* plugins include examples; do
	[ -d "$folder" ] || continue
	find "$folder" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) -exec perl t/lib/english.pl {} + >"$tmp/found"
	[ ! -s "$tmp/found" ]
	tap_result $? "comments and messages of $folder" || tap_comment <"$tmp/found"
done

# The texts that the program prints about itself.
if [ -x "$build/heddle" ]; then
	"$build/heddle" keys --man >"$tmp/keys.5" 2>"$tmp/err"
	for verb in $("$build/heddle" --help | sed -n 's/^  \([a-z-]*\) .*/\1/p'); do
		"$build/heddle" "$verb" --help
	done >"$tmp/help" 2>>"$tmp/err"
	[ "$(wc -l <"$tmp/help")" -gt 100 ] && [ "$(wc -l <"$tmp/keys.5")" -gt 100 ]
	tap_result $? "the program prints help texts and a page of keys" || tap_comment <"$tmp/err"
	for f in keys.5 help; do
		perl t/lib/english.pl "$tmp/$f" >"$tmp/found"
		tap_result $? "$f" || tap_comment <"$tmp/found"
	done
fi

# english.pl finds what it looks for.
{ echo "One two three four five six seven eight nine ten 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25." && echo "A b 25."; } >"$tmp/a.md"
ok "a sentence of 25 words passes" perl t/lib/english.pl "$tmp/a.md"
sed 's/25\. *$/25 26./' "$tmp/a.md" >"$tmp/b.md"
fails "a sentence of 26 words is refused" perl t/lib/english.pl "$tmp/b.md"
{ echo '```' && cat "$tmp/b.md" && echo '```' && sed 's/^/| /' "$tmp/b.md"; } >"$tmp/c.md"
ok "... but passes in code and tables" perl t/lib/english.pl "$tmp/c.md"
echo "A rank has not the tensor." >"$tmp/d.md"
fails "a phrase that is not English is refused" perl t/lib/english.pl "$tmp/d.md"
source() { printf '%s\n' "$@" >"$tmp/e.c"; perl t/lib/english.pl "$tmp/e.c" >"$tmp/found"; }
words="a b c d e f g h i j k l m n o p q r s t u v w x"
ok "a comment of a source may contain a table and code" source "/* A $words." " *" " *   $words $words" ' */' 'int x;'
fails "a comment of 26 words is refused" source "/* A" " * $words y. */"
fails "a message of 26 words in two strings is refused" source "	fail(\"%s: $words \"" '	     "y");'
fails "a message with 'what' instead of a noun is refused" source '	fail("%s: what is saved is whole");'
ok "sentences of a comment may begin with a name in lower case" source "/* A $words. to_device y. */"
done_testing
