# SPDX-License-Identifier: Apache-2.0
# Shared by bin/quickstart and bin/test: installs missing packages, and builds in ./build.

say() { printf '%s\n' "$*" >&2; }
stop() { say "$0: $*"; exit 1; }

have() { command -v "$1" >/dev/null 2>&1; }
header() { echo "#include <$1>" | cc -E - >/dev/null 2>&1; }
header_of_width() { echo "#include <$1>" | cc -DPCRE2_CODE_UNIT_WIDTH=8 -E - >/dev/null 2>&1; }

# Succeeds if autoreconf has written all of its files, as in the archive of a release.  An interrupted one has written
# only configure.
prepared() { [ -f configure ] && [ -f Makefile.in ] && [ -f config.h.in ]; }

# Prints the missing Debian packages, by testing for the program or header that each provides.  The compiler comes
# first: without one, headers cannot be tested for.
missing_packages() {
	{ have cc && have make && [ -f "$(cc -print-file-name=crt1.o 2>/dev/null)" ]; } || echo build-essential
	if ! prepared; then
		have autoreconf || echo autoconf
		have automake || echo automake
		have libtoolize || echo libtool
	fi
	{ have pkg-config || have pkgconf; } || echo pkg-config
	{ have mpicc && mpicc --showme:version >/dev/null 2>&1; } || echo libopenmpi-dev
	have mpirun || echo openmpi-bin
	header oneapi/dnnl/dnnl.h || echo libdnnl-dev
	header ltdl.h || echo libltdl-dev
	header ini.h || echo libinih-dev
	header jansson.h || echo libjansson-dev
	header_of_width pcre2.h || echo libpcre2-dev
	header zlib.h || echo zlib1g-dev
	header zstd.h || echo libzstd-dev
	have prove || echo perl
	for program; do
		have "$program" || echo "$(package_of "$program")"
	done
}

package_of() {
	case $1 in
	bible) echo bible-kjv ;;
	ip) echo iproute2 ;;
	ps) echo procps ;;
	*) echo "$1" ;;
	esac
}

# install_missing [PROGRAM...]: installs missing packages, including those of these programs.
install_missing() {
	missing=$(missing_packages "$@" | tr '\n' ' ')
	[ -n "$missing" ] || return 0
	have apt-get || stop "missing, and there is no apt-get to install it (Debian names): $missing"
	sudo=
	if [ "$(id -u)" -ne 0 ]; then
		have sudo || stop "missing, and there is no sudo; as root: apt-get install $missing"
		sudo=sudo
	fi
	say "installing $missing"
	$sudo apt-get -qq update || say "apt-get update failed; continuing with the present package lists"
	# One word per package.
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >&2 ||
		stop "apt-get install $missing: failed"
	missing=$(missing_packages "$@" | tr '\n' ' ')
	[ -z "$missing" ] || stop "installed, but still not found: $missing"
}

# build [TARGET...]: configures once, and builds; make itself notices changes of configure.ac or of a list of files.
build() {
	prepared || autoreconf -fi >&2 || stop "autoreconf failed"
	mkdir -p build
	if [ ! -f build/Makefile ]; then
		(cd build && ../configure --quiet) || stop "configure failed; see build/config.log"
	fi
	make -C build -s -j"$(nproc)" "$@" >&2 || stop "make failed"
}

# Open MPI refuses to run as root unless both are set; containers need that.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
