#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Questions with several answers: log-likelihoods as transformers has them, in any layout.  An answer that is one token too
# long or too short, or a row that another rank has, changes numbers that people quote, and no form of the output.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

# Of an answer's at most 13 tokens each is off by rounding as a logit is, and the sum by as many times that.
limit=$(awk 'BEGIN { print 13 * 1.5e-5 }')
likelihoods() { sed -n 's/^question .*log-likelihoods //p' "$1"; }
questions=kept/choices.jsonl
ask() { "$heddle" eval "$1" --choices $questions --tokenizer byte; }

for model in gpt2 llama llama-tied mixtral; do
	ask kept/$model >said 2>progress || tap_comment <progress
	near "$model: likelihoods as transformers has them" \
		"$(apart "$(likelihoods said | tr '\n' ' ')" "$(tr '\n' ' ' <"kept/$model/choices.txt")")" 0 "$limit"
done

# What follows from the numbers that were kept: by tokens, of which each byte here is one, and by bytes.
"$heddle" eval kept/gpt2 --choices $questions --tokenizer byte >said 2>progress
like "progress in tenths" "$(cat progress)" '^eval: 13 of 13 answers$'
is "the last line" "$(tail -1 said)" "accuracy 0.6  by tokens 0.4  by bytes 0.4  questions 5"
like "the likeliest answer is not the likeliest a token" "$(sed -n 4p said)" '^question 4  answer 1  best 1  by tokens 0  by bytes 0 '
is "as JSON one line" "$("$heddle" eval kept/gpt2 --choices $questions --tokenizer byte --json 2>progress | wc -l)" 1
json=$("$heddle" eval kept/gpt2 --choices $questions --tokenizer byte --json 2>progress)
like "its numbers" "$json" '"questions": *5, *"accuracy": *0\.6, *"accuracy_by_tokens": *0\.4, *"accuracy_by_bytes": *0\.4'
like "its answers" "$json" '"tokens": *\[12, *1\], *"bytes": *\[12, *1\], *"answer": *1, *"best": *1, *"best_by_tokens": *0'
# A prompt's last blank is the answer's first token, and no byte of its text.
like "a blank between" "$json" '"tokens": *\[2, *3, *4, *3\], *"bytes": *\[1, *2, *3, *2\]'
is "with --data both" "$("$heddle" eval kept/gpt2 --choices $questions --tokenizer byte --data kept/ids-llmc.bin --json 2>progress |
	grep -c '"loss".*"accuracy"')" 1

# -- any layout: answers in rows of replicas, of stages, of pieces of the vocabulary and of the sequence
for layout in gpt2:3:dp gpt2:3:tp gpt2:2:pp mixtral:2:ep; do
	model=${layout%%:*} rest=${layout#*:}
	n=${rest%%:*} axis=${rest#*:}
	mpi "$n" "$heddle" eval "kept/$model" --choices $questions --tokenizer byte --set x.plugin="$axis" --set x.size="$n" \
		--set train.global_batch=6 >said 2>progress || tap_comment <progress
	near "$model, $axis $n" "$(apart "$(likelihoods said | tr '\n' ' ')" "$(tr '\n' ' ' <"kept/$model/choices.txt")")" 0 "$limit"
done

# -- refused
refused() {
	printf '%s\n' "$1" >bad.jsonl
	fails "$2" "$heddle" eval kept/gpt2 --choices bad.jsonl --tokenizer byte
	like "is refused" "$(cat .ok)" "^heddle: bad\.jsonl:1: .*$3"
}
refused '{"prompt": "a", "choices": ["b"], "answer": 1}' "an answer that is none of them" '"answer" is not the index'
is "before --data is evaluated" "$("$heddle" eval kept/gpt2 --choices bad.jsonl --tokenizer byte --data kept/ids-llmc.bin 2>progress)" ""
refused '{"prompt": "a", "choices": [], "answer": 0}' "no choices" 'no list "choices"'
refused '{"choices": ["b"], "answer": 0}' "no prompt" 'no text "prompt"'
refused '{"prompt": " ", "choices": ["b"], "answer": 0}' "an empty prompt" 'no token'
refused '{"prompt": "a", "choices": ["b", ""], "answer": 0}' "an empty choice" 'no token of its own'
refused '{"prompt": "a", "choices": ["12345678901234"], "answer": 0}' "an answer longer than the model" '14 tokens, .*train\.seq = 13'
refused '{"prompt": "a"' "no JSON" 'expected'
fails "neither data nor choices" "$heddle" eval kept/gpt2
like "is refused" "$(cat .ok)" '--data FILE or --choices FILE'

with_torch
ok "transformers computes what was kept" sh -c 'PYTHONPATH=kept "$0" kept/choices.py kept/gpt2 kept/choices.jsonl >again' "$python"
near "the same numbers" "$(apart "$(tr '\n' ' ' <again)" "$(tr '\n' ' ' <kept/gpt2/choices.txt)")" 0 1e-9
done_testing
