#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bundle runs in an empty root with only glibc, a shell and coreutils.  If this broke, the bundle would lack a
# library, a component of Open MPI or a program that only the machine that made it has. HD_TEST_LONG=1 runs all parts
# of run-all, which takes minutes; otherwise one part and two ranks run.  HD_TEST_BUNDLE and HD_TEST_PORTABLE are
# files of t/gpu/bundle and of make portable, with a module and NCCL, used instead of those made here.
. "${0%/*}/lib/tap.sh"

[ -r "$build/heddle-cuda-sim.so" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
for tool in ldd strip xz tar ompi_info mpirun orted unshare; do
	command -v $tool >/dev/null || skip_all "$tool is not there"
done

bundle() { HD_BUILD="$build" HD_BUNDLE_MODELS= HD_BUNDLE_XZ=0 sh "$src/t/gpu/bundle" "$@"; }
unpack() {		# FILE TARGET
	tar -xJf "$1" -C "$tmp/empty" && mv "$tmp"/empty/heddle-* "$tmp/empty/$2"
}
whole=${HD_TEST_BUNDLE:-$tmp/bundle.tar.xz} portable=${HD_TEST_PORTABLE:-$tmp/portable.tar.xz}
[ -n "$HD_TEST_BUNDLE" ] || ok "t/gpu/bundle makes a bundle" bundle --module no --nccl no "$whole"
[ -n "$HD_TEST_PORTABLE" ] || ok "... and one without tests" bundle --module no --nccl no --no-tests "$portable"
ok "a bundle has at most 40 MB" [ "$(wc -c <"$whole")" -le 40000000 ]
mkdir "$tmp/empty" && unpack "$whole" here && unpack "$portable" portable || skip_all "no bundle"
top=$tmp/empty/here
is "the bundle contains no wrapper of libtool" "$(grep -rlI 'libtool' "$top/program")" ""
is "... no path of the build tree's libraries" \
	"$(grep -rl "$build/.*\.so" "$top/program/heddle" "$top/lib" "$top/mpi/lib")" ""
is "... and no glibc" "$(find "$top" -name 'libc.so*' -o -name 'ld-linux*')" ""
fails "an unknown option is refused" bundle --frob "$tmp/x"
fails "run-all refuses an unknown part" sh "$top/t/gpu/run-all" --simulated --only frob "$tmp/x"

# -- an older glibc is reported ----------------------------------------------------------------------------------------
sed 's/@GLIBC@/99.1/g; s/@GLIBCXX@/GLIBCXX_3.4/g' "$src/t/gpu/env.sh.in" >"$tmp/env.sh"
like "the message has the version of an older glibc and the one needed" "$(root=$top; (. "$tmp/env.sh") 2>&1)" \
	"this machine's glibc is [0-9.]+, and this bundle was made where it is 99.1"

# -- an empty root --------------------------------------------------------------------------------------------------------
put() {			# FILE: copies it to the same place in the root
	mkdir -p "$tmp/empty$(dirname "$1")" && cp -L "$1" "$tmp/empty$1"
}
mkdir -p "$tmp/empty/proc" "$tmp/empty/dev" "$tmp/empty/tmp" "$tmp/empty/bin"
for p in sh "[" basename cat chmod cp cut date dirname env expr false head id ln ls mkdir mktemp mv nproc paste pwd readlink rm \
	rmdir seq sleep sort stat tail tee test timeout touch tr true uname uniq wc; do
	f=$(command -v $p)
	case $f in /*) ;; *) f=/usr/bin/$p ;; esac
	[ ! -x "$f" ] || cp -L "$f" "$tmp/empty/bin/$p"
done
libc=$(ldd "$build/heddle" | sed -n 's/.*=> \(.*\)\/libc\.so\.6.*/\1/p')
for f in "$tmp"/empty/bin/*; do ldd "$f"; done 2>/dev/null | grep -o '/[^ ]*' | sort -u >needed
for l in $(cat needed) $(for n in libm libdl libpthread librt libutil libresolv libmvec; do ls "$libc/$n".so.[0-9] 2>/dev/null; done); do
	put "$l"
done

empty_root() {		# COMMAND
	unshare $how sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /bin/env -i PATH=/bin HOME=/ /bin/sh -c "$1"' \
		"$tmp/empty" "$1"
}
how=
for try in "-m" "-rm"; do
	unshare $try sh -c 'mount --rbind /dev "$0/dev" && chroot "$0" /bin/true' "$tmp/empty" 2>/dev/null && how=$try && break
done
PATH=$PATH:/usr/sbin:/sbin
if [ -z "$how" ]; then
	skip "an empty root cannot be made here (unshare)"
	done_testing
fi
[ "$how" = -m ] || how="-rm --pid --fork"
ok "the root has no awk, grep, sed or ldd" \
	empty_root '! command -v awk && ! command -v grep && ! command -v sed && ! command -v ldd'
for from in here portable; do
	like "the program starts in the root, $from" "$(empty_root "/$from/bin/heddle --version" 2>&1)" '^heddle [0-9]'
	empty_root "cd /tmp && rm -rf a && mkdir a && cd a && from=/$from"' && cp $from/conf/quickstart.ini a.ini && i=0 &&
		while [ $i -lt 600 ]; do echo "let there be light $i"; i=$((i + 1)); done >corpus.txt &&
		export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
		$from/bin/mpirun --oversubscribe -np 2 $from/bin/heddle train a.ini --set train.steps=1 --set train.seq=16 \
			--set model.layers=1 --set train.eval_batches=1 --set log.sample=0 \
			--set log.metrics=m.json && cat m.json' >two 2>&1
	like "two ranks train in the root, $from" "$(cat two)" '"step": 1,.*"loss": [0-9.]+'
done
rm -rf "$tmp/empty/portable"
only="--only losses"
[ -z "$HD_TEST_LONG" ] || only="--seconds 0"
empty_root "cd /tmp && /here/run-all --simulated $only /tmp/out" >out 2>&1
is "run-all --simulated $only succeeds in the root" "$? $(grep -c '^not ok\|^not begun' out)" "0 0" || tap_comment <out
ls "$tmp/empty/tmp/out" >files
is "... and leaves two files, since nothing failed" "$(tr '\n' ' ' <files)" "output.txt results.md "
like "... with a line for each step in the table" \
	"$(cat "$tmp/empty/tmp/out/results.md")" '^\| quick in bf16 beside the cpu \| ok \| 1 \|'
done_testing
