# SPDX-License-Identifier: Apache-2.0
# t/lib/until.sh - waiting for something of a job in the background, $job, that writes to out.
#
#	until_true COMMAND...	as long as the job runs, and a minute at most; a busy machine has more

until_true() {
	for i in $(seq $((300 * $(patience)))); do
		! "$@" || return 0
		kill -0 $job 2>/dev/null || break
		sleep 0.2
	done
	tail -20 out
	return 1
}
