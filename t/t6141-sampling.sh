#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `generate` samples from a model with known logits: letters must be as frequent as softmax(z / T) says.  The form
# of the output would not show a temperature or a top-k that has no effect.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v perl >/dev/null || skip_all "no perl, which writes the model"

# The last norm has weight 0 and bias (1, 0, ...), so its output is its bias, and the logit of v is wte[v][0].
sed '/^\[strategy/,$d' tiny.ini | sed -e 's/^layers = .*/layers = 1/' -e 's/^embed = .*/embed = 8/' -e 's/^heads = .*/heads = 1/' \
	-e 's/^seq = .*/seq = 16/' -e 's/^steps = .*/steps = 0/' >small.ini
cat >known.pl <<'EOT'
# known.pl FILE LETTERS LOGIT...: these logits for these letters, -1e6 for all other bytes
my ($path, $letters, @z) = @ARGV;
open(my $f, '+<:raw', $path) or die "$path: $!";
read($f, my $size, 8);
$size = unpack('Q<', $size);
read($f, my $header, $size);
sub put { my ($name, $bytes) = @_;
	$header =~ /"\Q$name\E": *\{[^}]*"data_offsets": *\[(\d+), *(\d+)\]/ or die "$path: no $name";
	$2 - $1 == length($bytes) or die "$name: $1 to $2, and not " . length($bytes);
	seek($f, 8 + $size + $1, 0);
	print $f $bytes; }
my @wte = map { [ -1e6, (0) x 7 ] } 0 .. 255;
$wte[ord(substr($letters, $_, 1))][0] = $z[@z == 1 ? 0 : $_] for 0 .. length($letters) - 1;
put('transformer.wte.weight', pack('f<*', map { @$_ } @wte));
put('transformer.ln_f.weight', pack('f<*', (0) x 8));
put('transformer.ln_f.bias', pack('f<*', 1, (0) x 7));
EOT
known() {			# NAME LETTERS LOGIT...: writes a checkpoint with these logits
	heddle train small.ini --set "checkpoint.dir=$1" >out 2>&1 || tap_comment <out
	name=$1
	shift
	perl known.pl "$name/step-00000000/model.safetensors" "$@" || echo "# perl failed"
	rm "$name/step-00000000/heddle/sums.json"
}
known four abcd 1 0.5 0 -1
known flat abcdefghijklmnopqrstuvwxyz 0
logits=$(heddle generate four --prompt x --logits | tr -d ' {}[]' | sed 's/"logits"://' | tr ',' '\n')
is "the logits are those written" "$(printf '%s\n' "$logits" | sed -n '98,101p' | tr '\n' ' ')$(printf '%s\n' "$logits" | sort -u | wc -l)" \
	"1.0 0.5 0.0 -1.0 5"

# drawn MODEL args...: samples 3000 letters, one a line, into ./letters
drawn() { model=$1; shift; heddle generate "$model" --prompt x --tokens 3000 "$@" | tail -c +2 | fold -w 1 >letters; }
# as_likely NAME TEMPERATURE LIMIT LETTERS LOGIT...: chi-square of ./letters is at most LIMIT, which it exceeds
# once in a thousand seeds; the seed is fixed
as_likely() {
	name=$1 t=$2 limit=$3 letters=$4
	shift 4
	why=$(awk -v t="$t" -v limit="$limit" -v letters="$letters" -v z="$*" '{ count[$1]++; n++ } END {
		split(z, logit, " ")
		for (i = 1; i <= length(letters); i++) sum += e[i] = exp(logit[i in logit ? i : 1] / t)
		for (i = 1; i <= length(letters); i++) {
			c = count[substr(letters, i, 1)]
			want = n * e[i] / sum
			of += c
			chi += (c - want) ^ 2 / want
			text = text " " c " for " want
		}
		printf "chi-square %.1f, at most %s; of %d letters %d are others:%s\n", chi, limit, n, n - of, text
		exit !(n == 3000 && of == n && chi <= limit)
	}' letters)
	tap_result $? "$name" || printf '%s\n' "$why" | tap_comment
}
for t in 0.5 1 2 100; do
	drawn four --temperature $t
	as_likely "temperature $t" $t 16.27 abcd 1 0.5 0 -1
done
drawn four
as_likely "the default temperature is 0.8" 0.8 16.27 abcd 1 0.5 0 -1
drawn four --temperature 1 --seed 2
as_likely "another seed" 1 16.27 abcd 1 0.5 0 -1
drawn four --temperature 2 --top-k 2
as_likely "top-k 2" 2 10.83 ab 1 0.5
drawn four --temperature 100 --top-k 3
as_likely "top-k 3" 100 13.82 abc 1 0.5 0
# at temperature 1 a has 0.474 of the probability, a and b 0.762, a to c 0.936
drawn four --temperature 1 --top-p 0.7
as_likely "top-p 0.7" 1 10.83 ab 1 0.5
drawn four --temperature 1 --top-p 0.8
as_likely "top-p 0.8" 1 13.82 abc 1 0.5 0
drawn four --temperature 1 --top-p 1
as_likely "top-p 1" 1 16.27 abcd 1 0.5 0 -1
# of the two likeliest a has 0.622
drawn four --temperature 1 --top-k 2 --top-p 0.7
as_likely "top-p applies to what top-k leaves" 1 10.83 ab 1 0.5
drawn flat --temperature 1
as_likely "26 letters of equal logits" 1 52.62 abcdefghijklmnopqrstuvwxyz 0

text() { heddle generate four --prompt x --tokens 50 "$@"; }
is "temperature 0 gives the likeliest letter" "$(text --temperature 0)" "x$(printf '%50s' '' | tr ' ' a)"
is "... and so does 0.01, where the others have e^-50" "$(text --temperature 0.01)" "$(text --temperature 0)"
is "top-p 0.4 leaves only the letter a" "$(text --temperature 1 --top-p 0.4)" "$(text --temperature 0)"

# Many prompts: the first text is as if it were alone, and the draws of one are not those of another.
printf 'x\nyy\n' >prompts.txt
is "two prompts give a text each" "$(heddle generate four --prompts prompts.txt --tokens 5 --temperature 0)" "xaaaaa
yyaaaaa"
is "... also in ids" \
	"$(printf '120\n121 121\n' >ids.txt; heddle generate four --prompts ids.txt --ids --tokens 2 --temperature 0)" "120 97 97
121 121 97 97"
is "... and a line of logits each" \
	"$(heddle generate four --prompts prompts.txt --logits | sort -u | wc -l) $(heddle generate four --prompts prompts.txt --logits | wc -l)" "1 2"
printf 'x\nx\n' >twice.txt
is "the first of two texts is as if it were alone" \
	"$(heddle generate four --prompts twice.txt --tokens 50 --temperature 1 | head -1)" "$(text --temperature 1)"
ok "the second text is another draw" \
	[ "$(heddle generate four --prompts twice.txt --tokens 50 --temperature 1 | tail -1)" != "$(text --temperature 1)" ]

# A prompt of 18 tokens, where train.seq is 16: only its end is read.
long=abcdabcdabcdabcdab
is "a long prompt: its end counts" "$(heddle generate four --prompt $long --tokens 1 --temperature 1 2>long.err)" "${long}$(
	heddle generate four --prompt $long --tokens 1 --temperature 1 --no-cache 2>/dev/null | tail -c 2)"
is "... with a warning" "$(grep -c 'generate: the prompt has 18 tokens, but the model reads only the last train\.seq = 16' long.err)" 1
printf 'x\n%s\n' $long >long.txt
heddle generate four --prompts long.txt --tokens 1 >out 2>long.err || tap_comment <long.err
is "one long prompt of two: the warning counts it" "$(grep 'reads only the last' long.err)" \
	"heddle: generate: prompts have up to 18 tokens, but the model reads only the last train.seq = 16; cut: 1 of 2"
heddle generate four --prompt abcdabcdabcdabcd --tokens 3 >out 2>long.err || tap_comment <long.err
is "a prompt that fits gives no warning" "$(grep -c 'reads only the last' long.err)" 0
printf '{"prompt": "%s", "choices": ["a", "bc"], "answer": 0}\n' abcdabcdabcdabc >long.jsonl
heddle eval four --choices long.jsonl >out 2>long.err || tap_comment <long.err
is "questions that fit give no warning" "$(grep -c 'reads only the last' long.err)" 0
printf '{"prompt": "%s", "choices": ["a", "bc"], "answer": 0}\n' abcdabcdabcdabcd >long.jsonl
heddle eval four --choices long.jsonl >out 2>long.err || tap_comment <long.err
is "a question that does not fit gives a warning" "$(grep 'reads only the last' long.err)" \
	"heddle: long.jsonl: prompts and answers have up to 18 tokens, but the model reads only the last train.seq + 1 = 17; cut: 1 of 2"

# -- options and prompts that are refused
refused() {
	name=$1 why=$2
	shift 2
	fails "$name" heddle generate four "$@"
	like "... is refused" "$(cat .ok)" "^heddle: $why"
}
refused "--prompt and --prompts" "generate: --prompt and --prompts" --prompt x --prompts prompts.txt
refused "--ids with a tokenizer" "generate: --tokenizer does nothing with --ids" --ids --prompt 1 --tokenizer byte
refused "--logits with --tokens" "generate: --tokens does nothing with --logits" --prompt x --logits --tokens 3
refused "--logits with --top-p" "generate: --top-p does nothing with --logits" --prompt x --logits --top-p 0.5
refused "top-p 0" "generate: --top-p: 0 leaves no token" --prompt x --top-p 0
refused "top-p 1.5" "generate: --top-p" --prompt x --top-p 1.5
printf 'x\n\n' >empty.txt
refused "an empty line" "generate: empty\.txt:2: the prompt is empty" --prompts empty.txt
refused "an id that does not exist" "generate: --ids: '256' is not an id below" --ids --prompt "1 256"

# Training prints such a text after its last step, at temperature 0.8 and with its own seed.
out=$(heddle train small.ini --set model.load=four/step-00000000 --set train.steps=1 --set train.lr=0 --set train.seed=5 \
	--set log.sample=50 --set log.sample_prompt=x 2>/dev/null)
is "log.sample prints the text of generate" "$(printf '%s\n' "$out" | sed -n '/^sample:/{n;p;}')" "$(text --seed 5)"

# Each of its tokens takes the work of one token, not that of the complete context.  With 256 tokens that is far less
# than half.
spent() { (HD_TEST=1 "$@" >said 2>&1 || tap_comment <said; times) | awk 'END { split($1, t, /[ms]/); print 60 * t[1] + t[2] }'; }
heddle train small.ini --set train.seq=256 --set model.embed=128 --set model.layers=3 --set checkpoint.dir=wide >out 2>&1 || tap_comment <out
again=$(spent heddle generate wide --prompt x --tokens 255 --no-cache)
once=$(spent heddle train small.ini --set train.seq=256 --set model.embed=128 --set model.layers=3 --set train.steps=0 --set log.sample=255)
ok "log.sample reads its context once ($once s of the processor; again for each token: $again s)" \
	awk -v a="$once" -v b="$again" 'BEGIN { exit !(a < b / 2) }'
# The members of a ring divide the training, but each generates the whole text.  A warning of that would be taken for one
# of the training.
unlike "a sample warns of no axis that the training uses" \
	"$(heddle_mpi 2 train small.ini --set cp.plugin=cp --set cp.size=2 --set cp.form=ring --set log.sample=8 2>&1)" 'nothing is sharded'

# A model with equal logits for three bytes that are not text.  A file gets the bytes, but a terminal gets UTF-8 without
# control characters.
known bytes "$(printf '\033\200\007')" 0
heddle generate bytes --prompt x --tokens 60 --temperature 1 >raw
is "generate writes bytes to a file" "$(tail -c +2 raw | tr -d '\033\200\007\n' | wc -c | tr -d ' ') $(wc -c <raw | tr -d ' ')" "0 62"
heddle train small.ini --set model.load=bytes/step-00000000 --set train.steps=1 --set train.lr=0 --set log.sample=60 --set log.sample_prompt=x \
	>shown 2>/dev/null
is "log.sample prints a sign for what is not text" \
	"$(sed -n '/^sample:/{n;p;}' shown)" "x$(printf '%60s' '' | sed 's/ /�/g')"
is "... and no zero byte" "$(tr -cd '\000' <shown | wc -c | tr -d ' ')" 0
if command -v script >/dev/null; then
	script -qec "$build/heddle generate bytes --prompt x --tokens 60 --temperature 1" /dev/null </dev/null >terminal 2>/dev/null
	is "so does generate on a terminal" "$(tr -d '\r' <terminal)" "x$(printf '%60s' '' | sed 's/ /�/g')"
fi
done_testing
