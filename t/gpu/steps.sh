# SPDX-License-Identifier: Apache-2.0
# t/gpu/steps.sh - the steps of t/gpu/run-all that are more than one command.  Each runs in its own process, with a time
# limit.

# near CPU GPU TOLERANCE: checks that the losses of two metrics files agree.
near() {
	sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$1" >"$work/a.loss"
	sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$2" >"$work/b.loss"
	paste "$work/a.loss" "$work/b.loss" | awk -v tol="$3" '
		NF != 2 || $1 + 0 <= 0 { bad = 1; next }
		{ d = $1 - $2; d = d < 0 ? -d : d; worst = d / $1 > worst ? d / $1 : worst; n++ }
		END {
			ok = n && !bad && worst <= tol
			printf "%s - %d losses, at most %.2g apart (%.2g is allowed)\n", ok ? "ok" : "not ok", n, worst, tol
			printf "why: %d losses, at most %.2g apart\n", n, worst
			exit !ok
		}'
}

opens() {
	"$build/heddle" train "$work/quick.ini" --set train.device=cuda --set train.steps=1 --set train.eval_batches=1 --set log.sample=0
}

# Compares a model on the GPU with the cpu in fp32.  The order of sums differs, and in bf16 the roundings of each token
# (2^-9 of a value) are averaged in the loss.
beside_cpu() {		# MODEL PRECISION TOLERANCE
	rm -f "$work/gpu.json"
	# shellcheck disable=SC2046	# words
	"$build/heddle" train "$work/$1.ini" $(train_args "$1" "$simulated") --set train.device=cuda --set train.precision="$2" \
		--set log.metrics="$work/gpu.json" || return 1
	near "$work/cpu/$1.json" "$work/gpu.json" "$3"
}

by_mma() { HEDDLE_WGMMA=0; mma=-mma; export HEDDLE_WGMMA; "$@"; }

# Runs a command under compute-sanitizer.  If only FEW checks of each kernel are made, the sanitizer's result alone
# counts, since a test then reads results that were not computed.
sanitized() {		# TOOL FEW command...
	tool=$1 few=$2; shift 2
	if [ "$simulated" = 1 ]; then		# the same without the sanitizer
		HD_TEST_FEW=$few "$@" >"$work/clean.txt" 2>&1
		status=$?
		[ "$few" = 0 ] || [ $status -ge 124 ] || status=0
	else
		HD_TEST_FEW=$few "$sanitizer" --tool "$tool" --error-exitcode 3 "$@" >"$work/clean.txt" 2>&1
		status=$?
		[ "$few" = 0 ] || [ $status -eq 3 ] || ! grep -q 'SUMMARY: 0 ' "$work/clean.txt" || status=0
	fi
	if [ "$few" = 0 ]; then cat "$work/clean.txt"; else sed 's/^not ok/# &/' "$work/clean.txt"; fi
	grep -m1 'SUMMARY: ' "$work/clean.txt" | sed 's/^=* */why: /'
	return $status
}

with_nccl() {
	rm -f "$work/gpu.json"
	# shellcheck disable=SC2046
	"$build/heddle" train "$work/quick.ini" $(train_args quick "$simulated") --set train.device=cuda --set train.precision=fp32 \
		--set train.comm=nccl --set log.metrics="$work/gpu.json" || return 1
	near "$work/cpu/quick.json" "$work/gpu.json" 2e-4
}

# Either it works, or an NCCL before 2.30, which cannot do it, is refused in one sentence.
two_on_one() {
	[ ! -d "$build/nccl" ] || export NCCL_HOME="$build/nccl"
	rm -f "$work/gpu.json"
	# shellcheck disable=SC2046
	HD_TEST_SHARE_GPU=1 mpirun --oversubscribe --bind-to none -np 2 "$build/heddle" train "$work/quick.ini" \
		$(train_args quick "$simulated") --set train.device=cuda --set train.precision=fp32 --set train.comm=nccl \
		--set log.metrics="$work/gpu.json" >"$work/two.txt" 2>&1
	status=$?
	cat "$work/two.txt"
	if [ $status -ne 0 ] && grep -q 'ranks share GPU .*which NCCL .* does not allow' "$work/two.txt"; then
		echo "why: refused, as this NCCL must"
		return 0
	fi
	[ $status -eq 0 ] && near "$work/cpu/quick.json" "$work/gpu.json" 2e-4
}

json() { sed -n 's/.*"'"$2"'": *\([-0-9.e+]*\).*/\1/p' "$1"; }

# LABEL FILE: prints a line of the table from the output of bench.  MFU is relative to the manufacturer's peak.
speed_line() {
	awk -v tokens="$(json "$2" tokens_per_second)" -v s="$(json "$2" step_seconds)" -v f="$(json "$2" flops_per_second)" -v peak="$peak" \
		-v label="$1" 'BEGIN {
		printf "| GPT-2 %s | %.0f | %.1f | %.1f | %.0f %% |\n", label, tokens, 1e3 * s, f / 1e12, 100 * f / 1e12 / peak
		printf "why: %.0f tokens/s, %.0f %% of the peak\n", tokens, 100 * f / 1e12 / peak >"/dev/stderr"
	}'
}

# Measures tokens and FLOPs per second, then each kernel's time compared with the bound from its bytes and FLOPs.
speed() {		# 124M or 1.3B
	steps=10 to=$1${mma:-}
	[ "$simulated" = 0 ] || steps=1
	"$build/heddle" bench "$work/gpt2-$1.ini" --set train.device=cuda --set train.precision=bf16 --steps $steps --json --profile \
		>"$work/speed-$to.txt" 2>&1
	status=$?
	cat "$work/speed-$to.txt"
	[ $status -eq 0 ] || return 1
	[ "$to" != 124M ] || printf '| model | tokens/s | ms a step | TFLOP/s | of the peak |\n|---|---|---|---|---|\n' >"$work/step-$to.md"
	speed_line "$1${mma:+, mma.sync}" "$work/speed-$to.txt" >>"$work/step-$to.md"
	kernels_of "$to" >"$work/kernels-$to.md"
	grep -q '^| [a-z][a-z0-9_]* | [0-9]' "$work/kernels-$to.md" || { echo "not ok - no kernel was timed"; return 1; }
}

speed_of_batch() {	# 124M or 1.3B, sequences per micro-batch, sequences per batch
	micro=$2 batch=$3
	[ "$simulated" = 0 ] || micro=1 batch=2
	"$build/heddle" bench "$work/gpt2-$1.ini" --set train.device=cuda --set train.precision=bf16 --steps 4 --json \
		--set train.micro_batch="$micro" --set train.global_batch="$batch" >"$work/batch-$1.txt" 2>&1
	status=$?
	cat "$work/batch-$1.txt"
	[ $status -eq 0 ] || return 1
	speed_line "$1, $batch sequences in micro-batches of $micro" "$work/batch-$1.txt" >"$work/step-$1-batch.md"
}

measured_machine() {
	quick=
	[ "$simulated" = 0 ] || quick=--quick
	"$build/heddle" machine $quick --out "$work/machine.ini" && cp "$work/machine.ini" "$out/machine.ini"
}

# LABEL MODEL [KEY=VALUE...]: compares a step's time by heddle plan, with the measured machine file, with the real one.
foresight() {
	label=$1 model=$2; shift 2
	sets="--set train.device=cuda --set train.precision=bf16"
	if [ "$simulated" = 0 ]; then for s; do sets="$sets --set $s"; done; fi
	# shellcheck disable=SC2086	# words
	"$build/heddle" plan "$work/$model.ini" --machine "$work/machine.ini" $sets --json >"$work/planned.txt" || return 1
	# Run for 1.5 s: a GPU is faster before its power and temperature have settled.
	steps=$(awk -v s="$(json "$work/planned.txt" step_seconds)" -v simulated="$simulated" 'BEGIN {
		n = simulated || s <= 0 ? 1 : int(1.5 / s) + 4
		print n < 400 ? n : 400
	}')
	# shellcheck disable=SC2086
	"$build/heddle" bench "$work/$model.ini" $sets --steps "$steps" --json >"$work/run.txt" 2>&1
	status=$?
	cat "$work/planned.txt" "$work/run.txt"
	[ $status -eq 0 ] || return 1
	awk -v label="$label" -v planned="$(json "$work/planned.txt" step_seconds)" -v bytes="$(json "$work/planned.txt" planned_peak_bytes)" \
		-v run="$(json "$work/run.txt" step_seconds)" -v simulated="$simulated" 'BEGIN {
		error = run > 0 ? 100 * (planned / run - 1) : 1e9
		printf "| %s | %.1f | %.1f | %+.1f %% | %.0f |\n", label, 1e3 * planned, 1e3 * run, error, bytes / 1e6
		printf "why: %.1f ms predicted, %.1f measured, %+.1f %%\n", 1e3 * planned, 1e3 * run, error >"/dev/stderr"
		exit !(simulated || (error < 10 && error > -10))
	}' >>"$work/foresight.md" || { echo "not ok - the prediction is more than 10 % off"; return 1; }
}

kernels_of() {
	printf '\nOne step of GPT-2 %s by kernel; the bound is bytes over GB/s or FLOPs over TFLOP/s, whichever is longer:\n\n' "$1"
	printf '| kernel | calls | ms | of the step | GB | GFLOP | GB/s | TFLOP/s | of the peak | of its bound |\n|---|---|---|---|---|---|---|---|---|---|\n'
	awk -v peak="$peak" -v memory="$memory" '
		$1 == "kernel" && $4 == "calls" { table = 1; next }	# ms, share, calls, GFLOP, GB
		$1 == "all" { table = 0 }
		table && $2 > 0 { name[++n] = $1; ms[n] = $2; calls[n] = $4; gf[n] = $5; gb[n] = $6; all += $2 }
		END {
			for (i = 1; i <= n; i++) {
				gbs[i] = 1e3 * gb[i] / ms[i]
				tf[i] = gf[i] / ms[i]
				of = gbs[i] / memory > tf[i] / peak ? gbs[i] / memory : tf[i] / peak
				printf "| %s | %d | %.3f | %.1f %% | %.4f | %.3f | %.0f | %.1f | %.0f %% | %.0f %% |\n", name[i], calls[i], ms[i],
					100 * ms[i] / all, gb[i], gf[i], gbs[i], tf[i], 100 * tf[i] / peak, 100 * of
			}
			printf "| all | | %.3f | | | | | | | |\n", all
		}' "$work/speed-$1.txt"
}
