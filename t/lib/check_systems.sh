#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_systems.sh ARCHIVE.tar.xz SYSTEM...	(make check-systems)
#
# Builds a release on other Linux systems, as their users would: bin/quickstart, then tests of the parts that differ
# between systems.  These are kernels (the library of matrix products), communication and kills (MPI), and checkpoints
# (libc).  A compiler warning is a failure.
# SYSTEM: a folder with a Debian or Ubuntu, or the name of a release, which debootstrap gets from its mirror.  Packages come from the
# mirrors.  Without root, unshare or debootstrap, it is skipped (status 77).
set -eu
archive=$(cd "$(dirname "$1")" && pwd)/${1##*/}
shift
skip() { echo "check-systems: skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "chroot needs root"
for tool in unshare chroot debootstrap; do
	command -v $tool >/dev/null || skip "no $tool"
done
work=$(mktemp -d "${TMPDIR:-/var/tmp}/heddle-systems.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM
tests='t20 t500 t6003 t6010 t6028 t6240'

# Ubuntu has most packages in its component "universe".
get() {	# SUITE FOLDER
	mirror=http://deb.debian.org/debian parts=main
	case $1 in jammy | noble | resolute) mirror=http://archive.ubuntu.com/ubuntu parts=main,universe ;; esac
	debootstrap --variant=minbase --components=$parts "$1" "$2" $mirror >"$work/base.log" 2>&1 ||
		{ tail -n 3 "$work/base.log"; return 1; }
}
# The quoted text is for the inner shell.
# shellcheck disable=SC2016
within() {	# FOLDER COMMAND...: runs it in its own namespace, so that its mounts end with it
	unshare -m sh -c 'root=$1; shift
		mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/dev/shm" || exit 1
		cp /etc/resolv.conf "$root/etc/resolv.conf"
		exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"' within "$@"
}
try() {	# NAME FOLDER
	rm -rf "$2/heddle" && mkdir "$2/heddle" && tar -xJf "$archive" -C "$2/heddle" --strip-components=1
	within "$2" sh -c "cd /heddle && bin/quickstart --set train.steps=50 && bin/test $tests" >"$work/$1.log" 2>&1 ||
		{ grep -E '^not ok|error:' "$work/$1.log" || tail -n 20 "$work/$1.log"; return 1; }
	! grep -A 3 'warning: .*\[-W' "$work/$1.log" || return 1
	# shellcheck disable=SC2016
	within "$2" sh -c '. /etc/os-release; cc --version | head -n 1; mpirun --version | head -n 1; echo "$PRETTY_NAME"' | paste -s -d , -
	tail -n 1 "$work/$1.log"
}

failed=
for system; do
	name=${system##*/} root=$system
	if [ ! -d "$system" ]; then
		root=$work/$name
		get "$name" "$root" || { echo "check-systems: $name: debootstrap failed"; failed="$failed $name"; continue; }
	fi
	try "$name" "$root" || failed="$failed $name"
	rm -rf --one-file-system "${work:?}/$name"
done
[ -z "$failed" ] || { echo "check-systems: failed:$failed"; exit 1; }
echo "check-systems: passed"
