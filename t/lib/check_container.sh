#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_container.sh ARCHIVE.tar.xz [FOLDER]	(make check-container)
#
# Builds the image that the Containerfile of a release describes, and trains in it: one rank, and two under mpirun.  No registry is
# used: the base image is made of FOLDER, a Debian system, or of one that debootstrap makes.  Packages come from
# Debian's mirrors. Without buildah, debootstrap or root, it is skipped (status 77).
set -eu
archive=$(cd "$(dirname "$1")" && pwd)/${1##*/}
system=${2:-}
suite=bookworm
base=localhost/debian:$suite
die() { echo "check-container: $*" >&2; exit 1; }
skip() { echo "check-container: skipped: $*"; exit 77; }
command -v buildah >/dev/null || skip "no buildah"
[ -n "$system" ] || command -v debootstrap >/dev/null || skip "no debootstrap"
[ "$(id -u)" = 0 ] || skip "chroot needs root"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/heddle-container.XXXXXX")
# The storage belongs to this run: images of the machine are neither used nor changed.
images() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
cleanup() {
	images unmount --all >/dev/null 2>&1 || :
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
export BUILDAH_ISOLATION=chroot

# -- the base system ---------------------------------------------------------------------------------------------------
if [ -z "$system" ]; then
	system=$work/system
	debootstrap --variant=minbase $suite "$system" >"$work/base.log" 2>&1 ||
		{ tail -n 5 "$work/base.log"; skip "debootstrap failed"; }
fi
from=$(images from scratch)
images copy -q "$from" "$system" / >/dev/null
images commit -q --rm "$from" "$base" >/dev/null
rm -rf "$work/system"

# -- the image -----------------------------------------------------------------------------------------------------------------------
mkdir "$work/source" && tar -xJf "$archive" -C "$work/source" --strip-components=1
images build --pull-never --build-arg "DEBIAN=$base" -f "$work/source/Containerfile" -t heddle "$work/source" >"$work/build.log" 2>&1 ||
	{ tail -n 30 "$work/build.log"; die "the image cannot be built"; }
echo "image: $(images images --format '{{.Size}}' localhost/heddle)"

# -- a small run in it ---------------------------------------------------------------------------------------------------------------
mkdir "$work/try"
cat >"$work/try/run.sh" <<'END'
set -e
i=0
while [ $i -lt 400 ]; do echo "In the beginning $i was the word."; i=$((i + 1)); done >text
cat >one.ini <<'INI'
[model]
layers = 2
embed = 32
heads = 2
[data]
train = text
[train]
seq = 32
global_batch = 8
steps = 4
[checkpoint]
dir = out
INI
{ cat one.ini; printf '[strategy tp]\nplugin = tp\n'; } >two.ini
heddle --version
! command -v cc || { echo "the image has a compiler"; exit 1; }
heddle train one.ini --set log.metrics=one.jsonl
OMP_NUM_THREADS=1 mpirun --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -np 2 heddle train two.ini \
	--set checkpoint.dir=out2 --set log.metrics=two.jsonl
heddle generate out --prompt 'In the' --tokens 4
END
image=$(images from --pull-never localhost/heddle)
images run --volume "$work/try:/work" "$image" -- sh run.sh >"$work/run.log" 2>&1 ||
	{ tail -n 40 "$work/run.log"; die "the run in the image failed"; }
loss() { sed -n '/"step": 4,/s/.*"loss": *\([0-9.]*\).*/\1/p' "$work/try/$1.jsonl"; }
sed -n '/^heddle [0-9]/{p;q;}' "$work/run.log"
echo "step 4: loss $(loss one) on one rank, $(loss two) on two"
awk -v a="$(loss one)" -v b="$(loss two)" 'BEGIN { exit !(a > 0 && a - b < 1e-4 && b - a < 1e-4) }' || die "one rank and two differ"
echo "check-container: passed"
