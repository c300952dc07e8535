# SPDX-License-Identifier: Apache-2.0
# t/lib/until.sh - waits for a condition while the background job $job, which writes to out, runs.
#
#	until_true COMMAND...	waits until the command succeeds, while the job runs, at most a minute (longer on a busy
#				machine)

until_true() {
	for i in $(seq $((300 * $(patience)))); do
		! "$@" || return 0
		kill -0 $job 2>/dev/null || break
		sleep 0.2
	done
	tail -20 out
	return 1
}
