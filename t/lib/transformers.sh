# SPDX-License-Identifier: Apache-2.0
# t/lib/transformers.sh - for tests that compare with torch and transformers, after tap.sh: $heddle, $python, and
# $tmp/text.txt, lines of numbers, in which the test then stands.  Without the Python packages the test is skipped.
heddle=$build/heddle
[ -x "$heddle" ] || skip_all "heddle is not built"
python=${PYTHON:-python3}
"$python" -c 'import torch, transformers, safetensors' 2>/dev/null || skip_all "python3 has no torch, transformers and safetensors"
export XDG_CACHE_HOME="$tmp/cache" HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
seq 1 2000 >"$tmp/text.txt"
cd "$tmp" || exit 1
