#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Questions with several answers must have the log-likelihoods of transformers, in any layout.  An answer that is off by
# one token, or another rank's row, changes numbers that people quote, but not the form of the output.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

# Each of an answer's at most 13 tokens has the rounding error of a logit, and their sum at most 13 times that.
limit=$(awk 'BEGIN { print 13 * 1.5e-5 }')
likelihoods() { sed -n 's/^question .*log-likelihoods //p' "$1"; }
questions=kept/choices.jsonl
ask() { "$heddle" eval "$1" --choices $questions --tokenizer byte; }

for model in gpt2 llama llama-tied mixtral; do
	ask kept/$model >said 2>progress || tap_comment <progress
	near "$model: the log-likelihoods are those of transformers" \
		"$(apart "$(likelihoods said | tr '\n' ' ')" "$(tr '\n' ' ' <"kept/$model/choices.txt")")" 0 "$limit"
done

# Accuracies that follow from the kept numbers, also per token (here each byte is one) and per byte.
"$heddle" eval kept/gpt2 --choices $questions --tokenizer byte >said 2>progress
like "progress is printed" "$(cat progress)" '^eval: 13 of 13 answers$'
is "the last line gives the accuracies" "$(tail -1 said)" "accuracy 0.6  by tokens 0.4  by bytes 0.4  questions 5"
like "the likeliest answer need not be the likeliest per token" \
	"$(sed -n 4p said)" '^question 4  answer 1  best 1  by tokens 0  by bytes 0 '
is "--json prints one line" \
	"$("$heddle" eval kept/gpt2 --choices $questions --tokenizer byte --json 2>progress | wc -l)" 1
json=$("$heddle" eval kept/gpt2 --choices $questions --tokenizer byte --json 2>progress)
like "... with the accuracies" \
	"$json" '"questions": *5, *"accuracy": *0\.6, *"accuracy_by_tokens": *0\.4, *"accuracy_by_bytes": *0\.4'
like "... and with the answers to each question" \
	"$json" '"tokens": *\[12, *1\], *"bytes": *\[12, *1\], *"answer": *1, *"best": *1, *"best_by_tokens": *0'
# A prompt's last blank is the answer's first token, but not a byte of its text.
like "a blank between prompt and answer counts as a token, not as a byte" \
	"$json" '"tokens": *\[2, *3, *4, *3\], *"bytes": *\[1, *2, *3, *2\]'
is "with --data, the loss is printed too" \
	"$("$heddle" eval kept/gpt2 --choices $questions --tokenizer byte --data kept/ids-llmc.bin --json 2>progress |
	grep -c '"loss".*"accuracy"')" 1

# -- any layout: the rows of answers are spread over replicas, stages, and shards of the vocabulary and the sequence
for layout in gpt2:3:dp gpt2:3:tp gpt2:2:pp mixtral:2:ep; do
	model=${layout%%:*} rest=${layout#*:}
	n=${rest%%:*} axis=${rest#*:}
	mpi "$n" "$heddle" eval "kept/$model" --choices $questions --tokenizer byte --set x.plugin="$axis" --set x.size="$n" \
		--set train.global_batch=6 >said 2>progress || tap_comment <progress
	near "$model, $axis $n: the same log-likelihoods" \
		"$(apart "$(likelihoods said | tr '\n' ' ')" "$(tr '\n' ' ' <"kept/$model/choices.txt")")" 0 "$limit"
done

# -- refused
refused() {
	printf '%s\n' "$1" >bad.jsonl
	fails "$2" "$heddle" eval kept/gpt2 --choices bad.jsonl --tokenizer byte
	like "... is refused" "$(cat .ok)" "^heddle: bad\.jsonl:1: .*$3"
}
refused '{"prompt": "a", "choices": ["b"], "answer": 1}' "an answer that is not one of the choices" '"answer" is not the index'
is "... before --data is evaluated" \
	"$("$heddle" eval kept/gpt2 --choices bad.jsonl --tokenizer byte --data kept/ids-llmc.bin 2>progress)" ""
refused '{"prompt": "a", "choices": [], "answer": 0}' "a question without choices" 'no list "choices"'
refused '{"choices": ["b"], "answer": 0}' "a question without a prompt" 'no text "prompt"'
refused '{"prompt": " ", "choices": ["b"], "answer": 0}' "an empty prompt" 'no token'
refused '{"prompt": "a", "choices": ["b", ""], "answer": 0}' "an empty choice" 'no token of its own'
refused '{"prompt": "a", "choices": ["12345678901234"], "answer": 0}' "an answer longer than train.seq" '14 tokens, .*train\.seq = 13'
refused '{"prompt": "a"' "a line that is not JSON" 'expected'
fails "eval with neither data nor choices" "$heddle" eval kept/gpt2
like "... is refused" "$(cat .ok)" '--data FILE or --choices FILE'

with_torch
ok "transformers computes the kept numbers again" \
	sh -c 'PYTHONPATH=kept "$0" kept/choices.py kept/gpt2 kept/choices.jsonl >again' "$python"
near "... with the same result" "$(apart "$(tr '\n' ' ' <again)" "$(tr '\n' ' ' <kept/gpt2/choices.txt)")" 0 1e-9
done_testing
