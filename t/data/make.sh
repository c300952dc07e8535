#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make.sh - makes the files of this folder again, but for 0.1, with PyTorch and transformers (PYTHON, else python3; the kept
# ones are of torch 2.5.1 and transformers 4.57.6).  Other versions draw other weights; what tests compare holds for any.
set -e
cd "$(dirname "$0")"
python=${PYTHON:-python3}

"$python" tokens.py 257 . && rm ids.bin ids.idx text.txt
"$python" models.py .
for model in gpt2 llama llama-tied mixtral; do
	"$python" choices.py $model choices.jsonl >$model/choices.txt
	for ini in one-sgd one-adamw; do
		"$python" reference.py $ini.ini "$model/$ini" "$model"
	done
done
for run in run-*.ini; do
	"$python" reference.py "$run" "${run%.ini}"
done
