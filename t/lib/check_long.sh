#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_long.sh SOURCE PART...	(from the build folder)
# Makes each target PART, and writes to check-long.log for which commit it passed or failed, when, and how long it took.
# A part that passed for this commit is not made again, so an interrupted check resumes; with uncommitted changes all
# parts are made.
src=$1
shift
log=check-long.log
commit=$(git -C "$src" rev-parse HEAD 2>/dev/null || echo release)
[ -z "$(git -C "$src" status --porcelain --untracked-files=no 2>/dev/null)" ] || commit=$commit+changes
touch "$log"
failed=0
for part; do
	case $commit in
	*+changes) ;;
	*)
		if grep -q "^$commit $part passed" "$log"; then
			echo "$part: passed before, for this commit"
			continue
		fi ;;
	esac
	from=$(date +%s)
	echo "== $part"
	if ${MAKE:-make} "$part"; then how=passed; else how=failed failed=$((failed + 1)); fi
	echo "$commit $part $how after $(($(date +%s) - from)) s, $(date -u +%Y-%m-%dT%H:%M:%SZ)" | tee -a "$log"
done
echo "$(($# - failed)) of $# parts passed"
[ $failed = 0 ]
