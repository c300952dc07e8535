#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokenizers compared with Python's, where that is installed: newly trained ones, larger than those of
# t/data/tokenizers, on other text.  A different id would give a model other tokens than it knows.  make
# check-tokenizers does it on 100 MB.
. "${0%/*}/lib/tap.sh"
python=${PYTHON:-python3}
"$python" -c 'import tokenizers' 2>/dev/null || skip_all "no Python with tokenizers"
compare() { "$python" "$src/t/data/tokenizers/compare.py" "$@" >"$tmp/out" 2>&1; }
compare "$build/heddle" 0.1 --vocab 700 --log "$tmp/log"
for kind in $("$python" -c "import sys; sys.path.insert(0, '$src/t/data/tokenizers'); import train; print(*train.KINDS)"); do
	like "$kind: every id is Python's" "$(cat "$tmp/out")" "^ok [0-9]+ - $kind: [0-9]{5,} ids"
done

# A program that counts its calls: what is in the log is not asked of it again, but what is not there is.
cat >"$tmp/counted" <<EOF
#!/bin/sh
echo >>"$tmp/calls"
[ -e "$tmp/wrong" ] && exec echo 1
exec "$build/heddle" "\$@"
EOF
chmod +x "$tmp/counted"
calls() { wc -l <"$tmp/calls" | tr -d ' '; }
compare "$tmp/counted" 0.1 --vocab 700 --log "$tmp/log2" gpt2
compare "$tmp/counted" 0.1 --vocab 700 --log "$tmp/log2" gpt2 gemma
is "a stopped comparison continues: gpt2 once, gemma once" "$(calls)" 2
like "... and prints the logged result too" "$(cat "$tmp/out")" "^ok 1 - gpt2: [0-9]{5,} ids"
touch "$tmp/wrong"
! compare "$tmp/counted" 0.1 --vocab 700 --log "$tmp/log2" llama2
! compare "$tmp/counted" 0.1 --vocab 700 --log "$tmp/log2" llama2
like "a different result fails" "$(cat "$tmp/out")" "^not ok 1 - llama2"
is "... and is not kept in the log" "$(calls)" 4
done_testing
