#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tsan.sh probe CC FLAGS...	tests that CC's thread sanitizer finds races of threads and of OpenMP only
#        tsan.sh reports FOLDER		counts the reports written there by kind; fails if there are any
set -e
verb=$1
shift

reports() {
	cat "$1"/report.* >"$1/all" 2>/dev/null || { echo "check-tsan: no race was seen"; return 0; }
	grep -h '^SUMMARY' "$1/all" | sort | uniq -c | sort -rn
	echo "check-tsan: $(grep -c '^SUMMARY' "$1/all") reports are in $1/all"
	return 1
}

probe() {
	dir=$(mktemp -d "${TMPDIR:-/tmp}/heddle-tsan.XXXXXX")
	trap 'rm -rf "$dir"' EXIT
	cat >"$dir/races.c" <<'END'
#include <pthread.h>
#include <string.h>
static int sum, apart[64];
static void *add(void *times)
{
	for (int i = 0; i < 1000; i++)
		sum += *(int *)times;
	return 0;
}
int main(int argc, char **argv)
{
	int one = 1, total = 0;
	pthread_t t;

	if (argc > 1 && !strcmp(argv[1], "threads")) {
		if (pthread_create(&t, 0, add, &one))
			return 1;
		add(&one);
		return pthread_join(t, 0);
	}
	for (int k = 0; k < 50; k++) {
#pragma omp parallel for
		for (int i = 0; i < 64; i++)
			apart[i]++;
		total += apart[k];
	}
	if (argc > 1)
#pragma omp parallel for
		for (int i = 0; i < 1000; i++)
			sum += one;
	return total < 50;
}
END
	"$@" -fopenmp -o "$dir/races" "$dir/races.c" -lpthread 2>"$dir/why" || {
		sed 's/^/# /' "$dir/why"
		echo "check-tsan: $1 has no thread sanitizer, or no OpenMP (on Debian: clang-14 libclang-rt-14-dev libomp-14-dev)"
		return 1
	}
	wanted=0
	for what in '' threads openmp; do
		status=0
		OMP_NUM_THREADS=4 "$dir/races" $what >"$dir/out" 2>&1 || status=$?
		[ $status = $wanted ] || {
			sed 's/^/# /' "$dir/out"
			echo "check-tsan: ${what:-no race} ends with status $status, so its reports would mean nothing"
			return 1
		}
		wanted=66
	done
}

$verb "$@"
