#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts of bin/ find their own tree however they are called, and continue after an interruption.  configure refuses
# at once what could not be built or installed.  A beginner's first command would fail otherwise, or the last one of a
# long build.
. "${0%/*}/lib/tap.sh"
cd "$tmp" || exit 1

# A tree in which autoreconf was interrupted: it had written configure, and nothing else.
mkdir -p tree/bin stubs
cp "$src/bin/lib.sh" tree/bin
cat >stubs/autoreconf <<'END'
#!/bin/sh
echo "autoreconf $*" >>../log
echo ': >Makefile' >configure
chmod +x configure
touch Makefile.in config.h.in
END
echo '#!/bin/sh' >stubs/make
chmod +x stubs/*
: >tree/configure
built() { (cd tree && PATH="$tmp/stubs:$PATH" sh -c '. bin/lib.sh; build'); }
shell=$(command -v sh)
missing() { (cd tree && PATH=$tmp/nothing "$shell" -c '. bin/lib.sh; missing_packages'); }
like "a checkout needs autoconf, automake and libtool" "$(missing | paste -s -d ' ')" ' autoconf automake libtool '
ok "a build continues after an interrupted autoreconf" built
is "... with all that it writes" "$(cat log)" "autoreconf -fi"
ok "the next build succeeds" built
is "... without autoreconf" "$(cat log)" "autoreconf -fi"
unlike "the archive of a release, which has configure, needs none of them" "$(missing)" '^(autoconf|automake|libtool)$'

# The scripts work in the tree that they belong to, from any folder, and with CDPATH in the environment.
mkdir -p other/bin links
echo 'pwd; exit 0' >tree/bin/lib.sh
cp "$src/bin/test" "$src/bin/quickstart" tree/bin
for script in test quickstart; do
	is "bin/$script with CDPATH" "$(cd tree && CDPATH=$tmp/other "bin/$script")" "$(cd tree && pwd -P)"
	ln -s "../tree/bin/$script" "links/$script"
	is "... and by a link" "$("links/$script")" "$(cd tree && pwd -P)"
done
ok "bin/sources with CDPATH" sh -c 'cd "$1" && CDPATH=$2 bin/sources --check' sh "$src" "$tmp/other"
ln -s "$src/bin/sources" links/sources
ok "... and by a link" links/sources --check

if [ -f "$src/configure" ] && [ ! -f "$src/config.status" ]; then
	mkdir configured
	refused() { (cd configured && "$src/configure" --quiet "$@") 2>&1 | grep '^configure: error: '; }
	like "configure refuses a prefix with a blank" "$(refused --prefix="$tmp/two words")" \
		"error: $tmp/two words: an installation cannot be in a path with a blank"
	like "... and another folder with one" "$(refused --datadir="\${prefix}/two words")" \
		'error: .*/two words: an installation cannot be in a path with a blank'
	like "... and a build without OpenMP" "$(refused --disable-openmp)" 'error: --disable-openmp: Heddle needs OpenMP'
else
	skip "there is no configure, or it has configured the sources themselves"
fi
done_testing
