#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An installation that is copied elsewhere must work there: the program finds its plugins, layouts and machines next to
# its bin/.  Otherwise every package that is unpacked in a home directory would look for its plugins in /usr/local and
# find none.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all 'heddle is not built'
value() { sed -n "s/^$1 = //p" "$build/Makefile"; }
prefix=$(value prefix)
plugins=lib/heddle
case $(value libdir) in '${exec_prefix}/lib') ;; *) skip_all "libdir is not PREFIX/lib" ;; esac

there=$tmp/there
mkdir -p "$there/bin" "$there/$plugins" "$there/share/heddle"
cp "$build/heddle" "$there/bin/heddle"
cp "$build"/plugins/tp/.libs/tp.so "$build"/plugins/dp/.libs/dp.so "$there/$plugins"
cp -R "$src/conf" "$there/share/heddle/conf"
listed=$(cd "$tmp" && "$there/bin/heddle" plugins 2>&1)
like "its plugins are found" "$listed" '^tp '
is "... and no others" "$(echo "$listed" | sed 1d | grep -vc " $there/$plugins/[dt]p\.so\$")" 0
ok "a layout is planned with them" "$there/bin/heddle" check "$src/conf/megatron-tp.ini" --ranks 4 --set model.vocab=256
like "a machine is found by name" "$("$there/bin/heddle" plan "$src/conf/megatron-tp.ini" --ranks 4 --machine dgx-a100 --set model.vocab=256 2>&1)" \
	'tokens'
# When configure was given other folders, the files that contain them must be compiled again: the compiler has recorded
# that they include folders.h.
is "the objects that contain folders depend on them" \
	"$(cd "$build" && grep -l '[ /]folders\.h' engine/*/.deps/*.Po | sed 's|.*-||; s|Po$|c|' | sort -u | paste -s -d ' ')" \
	"$(cd "$src" && grep -rl 'HD_\(PREFIX\|PLUGIN_DIR\|DATA_DIR\)' engine --include=*.c | sed 's|.*/||' | sort -u | paste -s -d ' ')"
rm -r "$there/$plugins"
like "without them, the place where they were installed is named" \
	"$("$there/bin/heddle" check "$src/conf/megatron-tp.ini" --ranks 4 --set model.vocab=256 2>&1)" "no plugin \"tp\".* in $prefix/$plugins"

# The build of a plugin must find the headers there too.
if command -v pkg-config >/dev/null; then
	mkdir -p "$there/lib/pkgconfig" && cp "$build/heddle.pc" "$there/lib/pkgconfig"
	ln -s "$src/include" "$there/include"
	of() { PKG_CONFIG_PATH=$there/lib/pkgconfig pkg-config "$@" heddle; }
	include=$(of --cflags-only-I | sed 's/^-I//; s/ *$//')
	is "heddle.pc names the headers that were copied" "$(cd "$include" 2>/dev/null && pwd -P)" "$(cd "$src/include" && pwd -P)"
	like "... by their new path" "$include" "^$there/"
	is "... and the folder of plugins" \
		"$(cd "$there" && mkdir -p $plugins && cd "$(of --variable=plugindir)" && pwd -P)" \
		"$(cd "$there/$plugins" && pwd -P)"
	# So does a build folder that moved with its sources, into a path with a blank.
	case $(value srcdir) in
	/*) skip "the build folder was given absolute sources" ;;
	*)
		moved="$tmp/a tree/$(basename "$src")/build"
		mkdir -p "$moved" "$(dirname "$moved/$(value srcdir)")" && cp "$build/heddle-uninstalled.pc" "$moved"
		ln -s "$src/include" "$moved/$(value srcdir)/include"
		echo '#include <heddle/strategy.h>' >"$tmp/x.c"
		cat >"$tmp/Makefile" <<'END'
FLAGS := $(shell pkg-config --cflags heddle)
all: ; cc $(FLAGS) -fsyntax-only x.c
END
		ok "heddle-uninstalled.pc names the headers of sources that moved" \
			env PKG_CONFIG_PATH="$moved" make -s -C "$tmp"
		like "... by their new path" "$(PKG_CONFIG_PATH=$moved pkg-config --cflags heddle)" 'a\\ tree/'
		;;
	esac
	ok "a plugin is compiled with them" sh -c "printf '#include <heddle/strategy.h>\n' | cc -fsyntax-only -x c \$1 -" _ "-I$include"
else
	skip "no pkg-config"
fi
done_testing
