#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plugins and engines of different ABI minors work together.  Plugins built with the frozen headers of 1.0 plan the
# same as today's plugins, in today's engine and in one whose every struct has grown.  A plugin of a later minor loads
# if it uses nothing of that minor, and is refused by name if it does.  So is one of 0.x.  If this broke, an update of
# Heddle would break plugins that nobody rebuilds, or call them through wrong addresses.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v "${CC:-cc}" >/dev/null || skip_all "no C compiler"

page=$src/doc/abi.md
of() { sed -n "s/^#define HD_ABI_$1 \([0-9]*\)$/\1/p" "$src/include/heddle/version.h"; }
major=$(of MAJOR) minor=$(of MINOR)
later=$((minor + 1))
frozen=$src/t/abi/1.0

# -- the frozen headers are those of 1.0 ------------------------------------------------------------------------------
ok "the frozen headers have the hash of 1.0" sh -c 'grep -qx "$(HD_ABI_HEADERS=$1 sh "$2" --print)" "$3"' sh \
	"$frozen" "$src/t/t0006-abi.sh" "$src/t/abi.txt"
mkdir -p later/heddle
for h in "$src"/include/heddle/*.h; do
	awk -f "$src/t/lib/later.awk" "$h" >"later/heddle/${h##*/}"
done
[ "$(grep -c 'later;' later/heddle/*.h | awk -F: '{ n += $2 } END { print n }')" -gt 30 ]
tap_result $? "the headers of a later minor have grown everywhere"

# -- plugins ----------------------------------------------------------------------------------------------------------
# build HEADERS TO SOURCES...
build() {
	headers=$1 to=$2
	shift 2
	mkdir -p "${to%/*}"
	"${CC:-cc}" -std=gnu11 -O0 -w -fPIC -shared -fvisibility=hidden -Wl,-z,defs -I"$headers" -o "$to" "$@" -lm
}
layout() { # NAME: the sections of a layout with this plugin, as ./NAME.so
	sed '/^\[strategy/,$d' tiny.ini
	case $1 in
	dp) printf '[strategy dp]\nplugin = ./dp.so\nsize = 2\nzero = 3\n' ;;
	tp) printf '[strategy tp]\nplugin = ./tp.so\nsize = 2\nsequence_parallel = yes\n' ;;
	pp) printf '[strategy pp]\nplugin = ./pp.so\nsize = 2\nschedule = zb\n' ;;
	cp) printf '[strategy cp]\nplugin = ./cp.so\nsize = 2\nform = ring\nbalance = zigzag\n' ;;
	powersgd) printf '[strategy x]\nplugin = ./powersgd.so\nsize = 2\nsmallest = 100\n' ;;
	diloco) printf '[strategy x]\nplugin = ./diloco.so\nsize = 2\n' ;;
	int8_boundary) printf '[strategy pp]\nplugin = ./pp.so\nsize = 2\n[plugin b]\nfile = ./int8_boundary.so\n' ;;
	squared_relu) printf '[plugin r]\nfile = ./squared_relu.so\n' ;;
	muon) printf '[plugin muon]\nfile = ./muon.so\n' ;;
	esac
}
sources() {
	case $1 in
	dp | tp | pp | cp) ls "$src/plugins/$1/"*.c ;;
	powersgd | diloco | int8_boundary) echo "$src/t/abi/1.0/plugins/$1.c" ;; # old versions, since today's use 1.1
	*) find "$src/examples" -name "$1.c" ;;
	esac
}
ranks() { [ "$1" = squared_relu ] || [ "$1" = muon ] && echo 1 || echo 2; }
set_of() { [ "$1" != muon ] || echo "--set train.optimizer=muon"; }
# planned HEDDLE FOLDER NAME: prints the plan with the plugin of that folder, node by node.
planned() {
	cp tiny.ini text.txt "$2" 2>/dev/null
	layout "$3" >"$2/$3.ini"
	# Several words each.
	# shellcheck disable=SC2046
	(cd "$2" && "$1" explain "$3.ini" --ranks "$(ranks "$3")" --nodes $(set_of "$3") 2>&1 | sed 1d)
}
names="dp tp pp cp powersgd diloco int8_boundary squared_relu muon"
for name in $names; do
	# shellcheck disable=SC2046
	build "$src/include" "now/$name.so" $(sources "$name") && build "$frozen" "kept/$name.so" $(sources "$name") &&
		build later "new/$name.so" $(sources "$name")
	tap_result $? "$name: builds with headers of 1.0, of today, and of a later minor"
	planned "$build/heddle" now "$name" >want
	[ "$(wc -l <want)" -gt 20 ]
	tap_result $? "$name: has a plan" || tap_comment <want
	like "$name: a plugin of 1.0 is accepted" "$(heddle plugins "./kept/$name.so" 2>&1)" \
		"^$name [0-9.]+, ABI 1\\.0, "
	ok "$name: ... and plans the same" sh -c 'cmp - want' <<-END
	$(planned "$build/heddle" kept "$name")
	END
	like "$name: a plugin of a later minor is accepted" "$(heddle plugins "./new/$name.so" 2>&1)" \
		"^$name [0-9.]+, ABI $major\\.$later, "
	ok "$name: ... and plans the same, since it does not need that minor" sh -c 'cmp - want' <<-END
	$(planned "$build/heddle" new "$name")
	END
done
numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
for name in squared_relu muon; do
	for folder in now kept new; do
		# shellcheck disable=SC2046
		(cd $folder && heddle train "$name.ini" --set "log.metrics=$name.jsonl" --set "checkpoint.dir=of.$name" \
			--set train.deterministic=yes --set train.steps=2 $(set_of $name)) >out 2>&1 || tap_comment <out
	done
	is "$name: a plugin of 1.0 trains the same" "$(numbers "kept/$name.jsonl")" "$(numbers "now/$name.jsonl")"
	is "$name: a plugin of a later minor trains the same" "$(numbers "new/$name.jsonl")" \
		"$(numbers "now/$name.jsonl")"
	is "$name: training prints two steps" "$(numbers "now/$name.jsonl" | wc -l)" 2
done

# -- features of a later minor that this engine lacks -----------------------------------------------------------------
cat >needs.c <<'EOT'
#include <heddle/strategy.h>
static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);
	struct hd_rule_args x = { .size = sizeof(x), .dim = "batch", .axis = b->axis };
#ifdef NEEDS_ARGUMENT
	x.later = &x;
#endif
#ifdef ASKS
	if (HD_HAS(b->h, later) || HD_HAS(b->h->graph, later))
		return b->h->fail(p, HD_EBUG, "this engine says that it has what it has not");
#endif
	return b->h->rule(p, &x);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules,
#ifdef NEEDS_SLOT
	.later = &ops,
#endif
};
HD_PLUGIN_TABLES("needs", "1.0", .strategy = &ops,
#ifdef NEEDS_TABLE
	.later = &ops,
#endif
#ifdef BUILD
	.build = BUILD,
#endif
)
EOT
sed '/^\[strategy/,$d' tiny.ini >needs.ini
printf '[strategy n]\nplugin = ./needs.so\nsize = 2\n' >>needs.ini
# says NAME PATTERN STATUS HEADERS -D...
says() {
	name=$1 pattern=$2 status=$3 headers=$4
	shift 4
	build "$headers" ./needs.so "$@" needs.c
	out=$(heddle check needs.ini --ranks 2 2>&1)
	[ $? -eq "$status" ] && printf '%s\n' "$out" | grep -Eq -e "$pattern"
	tap_result $? "$name" || printf '%s\n want %s\n' "$out" "$pattern" | tap_comment
}
built="\\(built for ABI $major\\.$later, this engine has $major\\.$minor\\)"
says "a plugin that does not need its later minor is accepted" '^2 ranks = n 2' 0 later
says "a plugin that first asks for a later minor's function is accepted" '^2 ranks = n 2' 0 later -DASKS
says "a slot of a later minor is refused" \
	"needs\\.so: strategy: the table has [0-9]+ bytes, this engine's has [0-9]+, and byte [0-9]+ is not 0 $built" \
	1 \
	later -DNEEDS_SLOT
says "a table of a later minor is refused" "needs\\.so: plugin: the table has [0-9]+ bytes, .* $built" 1 later \
	-DNEEDS_TABLE
says "an argument of a later minor is refused" \
	'n\]: rule: the arguments have 48 bytes, this engine knows 40, and byte 4[0-7] is not 0' 1 later \
	-DNEEDS_ARGUMENT
says "a plugin that needs its later minor is refused" \
	"needs\\.so: needs ABI $major\\.$later, this engine has $major\\.$minor( |\$)" 1 later \
	"-DBUILD=\"minor=$later\""
says "a plugin that needs this minor is accepted" '^2 ranks = n 2' 0 "$src/include" "-DBUILD=\"minor=$minor\""
says "a minor that is not a number is refused" 'build is "minor=x", it must be "minor=NUMBER"' 1 "$src/include" \
	'-DBUILD="minor=x"'
says "an unknown need is refused" 'build asks for cuda=12, but this engine knows only minor' 1 "$src/include" \
	'-DBUILD="cuda=12"'
for h in "$src"/include/heddle/*.h; do
	mkdir -p before/heddle
	sed "s/heddle_plugin_v$major/heddle_plugin_v0/; s/\\(HD_ABI_MAJOR\\) .*/\\1 0/; s/\\(HD_ABI_MINOR\\) .*/\\1 12/" "$h" >"before/heddle/${h##*/}"
done
says "a plugin of 0.12 is refused" \
	"needs\\.so: exports heddle_plugin_v0: abi_major is 0, older than this engine's $major" 1 before

# -- names ------------------------------------------------------------------------------------------------------------
block() { awk -v want="<!-- test: $1 -->" '$0 == want { next_one = 1 } /^```/ { on = next_one && !on; if (!on) next_one = 0; next } on' "$page"; }
quoted() { tr -s ' \n' '\n' | sed 's/.*/"&",/'; }
{
	echo 'static const char *const ops[] = {'
	{ block ops | sed '/^update/d; s/ .*//' && block more-ops; } | quoted
	echo '}; static const char *const dims[] = {'
	block dims | quoted
	echo '}; static const struct { const char *op; unsigned in, most_in, out, most_out; } sides[] = {'
	block ops | awk '/->/ { split($0, side, " -> "); sub(/^[a-z]+ */, "", side[1]); few = side[1]; out = side[2]
		more = few ~ /\.\.\./; gsub(/\[[^]]*\]/, "", few); gsub(/\[[^]]*\]/, "", out)
		printf "{\"%s\",%d,%d,%d,%d},\n", $1, split(few, a, ",") - more, more ? 16 : split(side[1], a, ","), split(out, a, ","), split(side[2], a, ",") }'
	echo '};'
	cat <<'EOT'
#include <heddle/strategy.h>
#include <string.h>
static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_match all = { .size = sizeof(all) };
	for (unsigned i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (!h->graph->op(p, ops[i]))
			return h->fail(p, HD_EBUG, "no op %s", ops[i]);
	for (unsigned i = 0; i < sizeof(dims) / sizeof(*dims); i++)
		if (!h->dim(p, dims[i]) && (i < 9 || h->dim(p, "expert")))
			return h->fail(p, HD_EBUG, "no dim %s", dims[i]);
	for (struct hd_node *n = h->graph->node_next(p, NULL, &all); n; n = h->graph->node_next(p, n, &all))
		for (unsigned i = 0; i < sizeof(sides) / sizeof(*sides); i++)
			if (!strcmp(n->op->name, sides[i].op) && (n->nin < sides[i].in || n->nin > sides[i].most_in ||
				n->nout < sides[i].out || n->nout > sides[i].most_out))
				return h->fail(p, HD_EBUG, "%s has %u inputs and %u outputs", n->op->name, n->nin, n->nout);
	return HD_OK;
}
static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	static const char *const blocks[] = { "embed", "layer 0", "layer 1", "head" };
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_block *b = NULL;
	for (unsigned i = 0; (b = h->block_next(p, b)); i++)
		if (i > 3 || strcmp(b->name, blocks[i]))
			return h->fail(p, HD_EBUG, "block %u is %s", i, b->name);
	return hd_rule(h, p, "batch", hd_basic_of(self)->axis, NULL, 0);
}
static const struct hd_strategy_ops table = { .size = sizeof(table), .rewrite = rewrite, .rules = rules };
HD_PLUGIN("needs", "1.0", &table)
EOT
} >names.c
build "$frozen" ./needs.so names.c
for family in gpt2 'mixtral --set model.experts=2'; do
	# shellcheck disable=SC2086
	out=$(heddle check needs.ini --ranks 2 --set model.family=$family 2>&1)
	like "ops, dims and blocks of $family have the names of doc/abi.md" "$out" '^2 ranks = n 2'
done

# -- an engine whose structs have grown -------------------------------------------------------------------------------
if whole_sweep && [ -f "$build/Makefile" ]; then
	value() { sed -n "s/^$1 = //p" "$build/Makefile"; }
	flags="-std=gnu11 -O0 -w -I$tmp/later -I$build -I$src $(value OPENMP_CFLAGS)"
	for lib in MPI DNNL LTDL INIH JANSSON PCRE2 ZLIB ZSTD; do
		flags="$flags $(value ${lib}_CFLAGS)"
		libs="$libs $(value ${lib}_LIBS)"
	done
	mkdir -p grown/objects
	printf '#define HD_PLUGIN_DIR "/nowhere"\n#define HD_DATA_DIR "/nowhere"\n' >later/folders.h
	grown() {
		awk '/^ENGINE_SOURCES =/ { on = 1 } on { for (i = 1; i <= NF; i++) if ($i ~ /\.c$/) print $i } on && !/\\$/ { exit }' \
			"$src/sources.am" >sources
		echo engine/cli/main.c >>sources
		while read -r file; do
			# Several words each.
			# shellcheck disable=SC2046,SC2086
			$(value CC) $flags -c -o "grown/objects/$(echo "$file" | tr / _).o" "$src/$file" || return 1
		done <sources
		# shellcheck disable=SC2046,SC2086
		$(value CC) $(value OPENMP_CFLAGS) -o grown/heddle grown/objects/*.o "$build/libref.a" "$build/libcpu.a" \
			"$build/libbase.a" $libs $(value LIBS)
	}
	ok "an engine with one more field in every struct builds" grown
	for name in $names; do
		planned "$build/heddle" now "$name" >want
		ok "$name: a plugin of 1.0 plans the same there" sh -c 'cmp - want' <<-END
		$(planned "$tmp/grown/heddle" kept "$name")
		END
	done
fi
done_testing
