#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokenizers against Python's, where that is installed: larger ones than those of t/data/tokenizers, trained anew, on other text.
# make check-tokenizers does it on 100 MB.
. "${0%/*}/lib/tap.sh"
python=${PYTHON:-python3}
"$python" -c 'import tokenizers' 2>/dev/null || skip_all "no Python with tokenizers"
"$python" "$src/t/data/tokenizers/compare.py" "$build/heddle" 0.1 --vocab 700 >"$tmp/out" 2>&1
for kind in $("$python" -c "import sys; sys.path.insert(0, '$src/t/data/tokenizers'); import train; print(*train.KINDS)"); do
	like "$kind: every id is Python's" "$(cat "$tmp/out")" "^ok [0-9]+ - $kind: [0-9]{5,} ids"
done
done_testing
