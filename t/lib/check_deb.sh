#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_deb.sh ARCHIVE.tar.xz	(make check-deb)
#
# Builds the Debian package from a release, installs it into a root folder with nothing but the packages that it depends
# on, and trains there: one rank, and two under mpirun.  Without chroot or dpkg-dev, it is skipped (status 77).
set -eu
archive=$(cd "$(dirname "$1")" && pwd)/${1##*/}
die() { echo "check-deb: $*" >&2; exit 1; }
for tool in dpkg-buildpackage dpkg-shlibdeps unshare chroot; do
	command -v $tool >/dev/null || { echo "check-deb: skipped: no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "check-deb: skipped: chroot needs root"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# -- the package ----------------------------------------------------------------------------------------------------------------
mkdir "$work/source" && tar -xJf "$archive" -C "$work/source" --strip-components=1
cd "$work/source"
# -d: build dependencies are not checked, since configure looks for them.
dpkg-buildpackage -b -us -uc -d >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log"; die "the package cannot be built"; }
deb=$(ls "$work"/heddle_*.deb)
depends=$(dpkg-deb -f "$deb" Depends)
echo "package: ${deb##*/}, $(wc -c <"$deb") bytes, depends on $depends"

# -- a root with the packages that it depends on, directly or indirectly -----------------------------------------------
names() { tr ',' '\n' | sed 's/|.*//; s/(.*//; s/:any//; s/[[:space:]]//g; /^$/d'; }
found=" "
closure() {
	for p; do
		case $found in *" $p "*) continue ;; esac
		dpkg-query -W "$p" >/dev/null 2>&1 || continue
		found="$found$p "
		# One word per package.
		# shellcheck disable=SC2046
		closure $(dpkg-query -W -f '${Pre-Depends},${Depends}\n' "$p" | names)
	done
}
# shellcheck disable=SC2046
closure base-files dash coreutils libc-bin $(echo "$depends" | names)
root=$work/root
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/proc" "$root/dev" "$root/tmp" "$root/try"
for d in bin sbin lib lib64; do ln -s usr/$d "$root/$d"; done
# shellcheck disable=SC2086
dpkg -L $found 2>/dev/null | sort -u | while read -r f; do [ -d "$f" ] && [ ! -h "$f" ] || echo "$f"; done |
	tar -C / -c --ignore-failed-read -T - 2>/dev/null | tar -C "$root" -x --keep-directory-symlink
# Links of the alternatives system belong to no package.
mkdir -p "$root/etc/alternatives" && cp -a /etc/alternatives/. "$root/etc/alternatives"
for l in $(find /usr/bin /usr/lib -maxdepth 2 -type l -lname '/etc/alternatives/*'); do
	[ -e "$root$l" ] || { mkdir -p "$root$(dirname "$l")" && cp -a "$l" "$root$l"; }
done
echo "root: $(echo "$found" | wc -w) packages, $(du -sm "$root" | cut -f1) MB"
[ ! -e "$root/usr/bin/heddle" ] || die "the root has a heddle before the package is installed"

mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" && : >"$root/var/lib/dpkg/status"
dpkg --root="$root" --force-depends --log=/dev/null -i "$deb" >"$work/install.log" 2>&1 || { cat "$work/install.log"; die "the package cannot be installed"; }

# -- a small run there --------------------------------------------------------------------------------------------------------------
cat >"$root/try/run.sh" <<'END'
set -e
cd /try
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
heddle plugins >plugins
heddle train one.ini --set log.metrics=one.jsonl
OMP_NUM_THREADS=1 mpirun --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -np 2 heddle train two.ini \
	--set checkpoint.dir=out2 --set log.metrics=two.jsonl
heddle generate out --prompt 'In the' --tokens 4
heddle plan two.ini --ranks 2 --machine dgx-a100
END
in_root() { unshare --mount sh -c 'mount -t proc proc "$0/proc" 2>/dev/null || mount --rbind /proc "$0/proc"
	mount --rbind /dev "$0/dev" && exec chroot "$0" env -i HOME=/try PATH=/usr/bin:/usr/sbin TMPDIR=/tmp "$@"' "$root" "$@"; }
in_root sh /try/run.sh >"$work/run.log" 2>&1 || { tail -n 40 "$work/run.log"; die "the run in the root failed"; }
loss() { sed -n '/"step": 4,/s/.*"loss": *\([0-9.]*\).*/\1/p' "$root/try/$1.jsonl"; }
head -n 1 "$work/run.log"
echo "step 4: loss $(loss one) on one rank, $(loss two) on two"
awk -v a="$(loss one)" -v b="$(loss two)" 'BEGIN { exit !(a > 0 && a - b < 1e-4 && b - a < 1e-4) }' || die "one rank and two differ"

# -- removal leaves nothing
# ----------------------------------------------------------------------------------------------
dpkg --root="$root" --force-depends --log=/dev/null -r heddle >"$work/remove.log" 2>&1 || { cat "$work/remove.log"; die "it cannot be removed"; }
left=$(find "$root/usr" -path '*heddle*' ! -path '*/doc/heddle' | head -n 5)
[ -z "$left" ] || die "removed, but these files remain: $left"
echo "check-deb: passed"
