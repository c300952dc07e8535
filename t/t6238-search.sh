#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The layout that a search finds is the fastest of all layouts, fits into memory and passes check.  If a lower bound of
# the search were too high, the best layout would be lost without a word.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v python3 >/dev/null || skip_all 'no python3'

cat >m.ini <<'E'
[model]
layers = 4
embed = 64
heads = 4
vocab = 64
[data]
train = none
[train]
seq = 16
global_batch = 8
steps = 1
precision = fp32
E
cat >machine.ini <<'E'
[machine]
name = slow links
ranks_per_node = 2
memory = 1G
flops_fp32 = 1e11
memory_bandwidth = 1e10
kernel_latency = 1e-6
node_bandwidth = 5e9
node_latency = 1e-6
network_bandwidth = 1e9
network_latency = 1e-5
E
cat >space.ini <<'E'
[strategy a]
plugin = tp
size = 1..4
choose = form=1d, form=2d
[strategy b]
plugin = dp
choose = zero=0, zero=1
[strategy c]
plugin = pp
choose = schedule=1f1b, schedule=zb
[vary train.micro_batch]
values = 1, 2
[vary train.recompute]
values = full, none
E
search() { heddle plan m.ini --machine machine.ini --search --space "$tmp/space.ini" "$@" 2>&1; }
field() { printf '%s\n' "$1" | python3 -c 'import json, sys
print(eval(sys.argv[1], {"r": json.load(sys.stdin)}))' "$2" 2>&1; }
first='r["candidates"][0]["step_seconds"], r["candidates"][0]["ini"]'
planned='len(r["candidates"])'

# Various models, memory sizes and numbers of ranks; layers with experts after dense ones, which take a different time;
# and layers with a window.
windows='--set=model.family=llama --set=model.window=4 --set=train.seq=64'
for case in '4 --set=train.seq=64' '6 --set=model.layers=6' '4 --memory=1M' \
	'4 --set=model.family=mixtral --set=model.experts=4 --set=model.expert_mlp=64 --set=model.mlp=256 --set=model.dense_layers=3' \
	"4 $windows --set=model.layers=6 --set=model.window_layers=wwf" "4 $windows --set=model.layers=7 --set=model.window_layers=ffffffw" \
	'4 --set=model.experts=4 --set=model.moe_every=4'; do
	set -- $case
	ranks=$1
	shift
	searched=$(search --ranks "$ranks" --json --tries 0 "$@")
	all=$(HD_TEST_SEARCH_ALL=1 search --ranks "$ranks" --json --tries 0 "$@")
	is "$case: the search finds the best of all layouts" "$(field "$searched" "$first")" "$(field "$all" "$first")"
	ok "$case: ... without planning all of them: $(field "$searched" "$planned") of $(field "$all" "$planned")" \
		test "$(field "$searched" "$planned")" -lt "$(field "$all" "$planned")"
	is "$case: each layout is planned, or lost for a reason" \
		"$(field "$searched" "$planned + sum(x['layouts'] for x in r['lost'])")" "$(field "$searched" 'r["layouts"]')"
done

# Two micro-batches at a time, whose collectives overlap: small plans then have one or two pairs.
{ cat space.ini; printf '[vary train.overlap_micro_batches]\nvalues = no, yes\n'; } >pairs.ini
sed 's/^network_bandwidth = .*/network_bandwidth = 1e8/; s/^node_bandwidth = .*/node_bandwidth = 4e8/' \
	machine.ini >pairs-machine.ini
paired() { heddle plan m.ini --machine pairs-machine.ini --ranks 4 --search --space "$tmp/pairs.ini" --json --tries 0 \
	--set train.seq=64 2>&1; }
searched=$(paired)
all=$(HD_TEST_SEARCH_ALL=1 paired)
is "pairs of micro-batches: the search finds the best of all layouts" "$(field "$searched" "$first")" "$(field "$all" "$first")"
like "... which computes pairs" "$(field "$searched" 'r["candidates"][0]["ini"]')" 'overlap_micro_batches = yes'
ok "... without planning all of them: $(field "$searched" "$planned") of $(field "$all" "$planned")" \
	test "$(field "$searched" "$planned")" -lt "$(field "$all" "$planned")"

# A key that changes nothing with one choice of a strategy may change much with a different one.
cat >choices.ini <<'E'
[strategy a]
plugin = tp
size = 2
choose = form=1d sequence_parallel=yes, form=1d
[strategy c]
plugin = pp
size = 2
choose = schedule=1f1b, schedule=1f1b scatter_gather=yes
[vary train.micro_batch]
values = 1, 2
E
sed 's/^network_bandwidth = .*/network_bandwidth = 1e8/; s/^network_latency = .*/network_latency = 1e-4/' machine.ini >slow.ini
limited() { heddle plan m.ini --machine slow.ini --ranks 4 --search --space "$tmp/choices.ini" --json --tries 50 2>&1; }
searched=$(limited)
all=$(HD_TEST_SEARCH_ALL=1 limited)
is "scatter_gather with two forms of tp: the search finds the best of all layouts" \
	"$(field "$searched" "$first")" "$(field "$all" "$first")"
said=$(heddle plan m.ini --machine machine.ini --ranks 4 --search --space "$tmp/space.ini" --json --memory 1K 2>/dev/null)
is "if no layout fits, each is planned or lost, once" \
	"$(field "$said" "$planned + sum(x['layouts'] for x in r['lost'])")" "$(field "$said" 'r["layouts"]')"
# Layouts near the best are planned although their families are still queued.
printf '[model]\nlayers = 4\nembed = 64\nheads = 4\nvocab = 64\n[data]\ntrain = none\n[train]\nseq = 16\nglobal_batch = 8\nsteps = 1\n' >eight.ini
said=$(heddle plan eight.ini --ranks 8 --search --tries 5 --machine dgx-a100 --json)
is "with few tries each layout is counted once" \
	"$(field "$said" "len(r['candidates']) + sum(x['layouts'] for x in r['lost'])")" "$(field "$said" 'r["layouts"]')"

printf '[strategy c]\nplugin = pp\nsize = 3\n' >three.ini
said=$(heddle plan eight.ini --ranks 8 --search --space three.ini --machine dgx-a100 2>&1)
is "a space without a layout of that many ranks: one message" "$said" \
	'heddle: plan: the search space has no layout of 8 ranks: its sizes do not multiply to it'

# Many micro-batches, and an update that takes as long as several of them.  When a search with few tries sorts layouts,
# the work of once a step must not count for each micro-batch.
sed 's/^layers = .*/layers = 8/; s/^global_batch = .*/global_batch = 384/' m.ini >many.ini
sed 's/^memory_bandwidth = .*/memory_bandwidth = 1e9/; s/^network_bandwidth = .*/network_bandwidth = 1e8/; s/^kernel_latency = .*/kernel_latency = 1e-7/' \
	machine.ini >slow.ini
many() { heddle plan many.ini --machine slow.ini --search --space "$tmp/space.ini" --ranks 8 --json --tries "$1" 2>&1; }
is "many micro-batches, few tries: the search finds the best of all layouts" \
	"$(field "$(many 17)" "$first")" "$(field "$(many 0)" "$first")"

# Alternatives of `also` are tried for the fastest layouts, or for all of them if no number of plans is given.  With
# zero 3, parameters move several times for each of two micro-batches.
printf '[strategy b]\nplugin = dp\nchoose = zero=3\nalso = zero=0\n' >also.ini
for tries in 1 0; do
	said=$(heddle plan m.ini --machine machine.ini --search --space also.ini --ranks 4 --json --tries $tries \
		--set train.micro_batch=1 2>&1)
	like "also, --tries $tries: the best layout uses the alternative" \
		"$(field "$said" 'r["candidates"][0]["ini"]')" 'zero = 0'
done
# So are alternative values.  An INI without them does not name the key.
printf '[strategy a]\nplugin = tp\n[vary train.overlap_micro_batches]\nvalues = no\nalso = yes\n' >also.ini
for tries in 1 0; do
	said=$(heddle plan m.ini --machine pairs-machine.ini --search --space also.ini --ranks 4 --json --tries $tries \
		--set train.seq=64 --set train.micro_batch=1 2>&1)
	is "also of [vary], --tries $tries: one of two layouts has the other value, and it is the best" \
		"$(field "$said" '[x["ini"].count("overlap_micro_batches") for x in r["candidates"]]')" '[1, 0]'
done

# Scatter/gather changes nothing if the tensors that cross stages are sharded.  One pair of complete plans shows that
# for the others.
cat >twins.ini <<'E'
[strategy a]
plugin = tp
size = 2
choose = form=1d sequence_parallel=yes
[strategy b]
plugin = dp
[strategy c]
plugin = pp
size = 2
choose = schedule=1f1b scatter_gather=yes, schedule=1f1b
[vary train.recompute]
values = full, none
E
said=$(heddle plan m.ini --machine machine.ini --search --space twins.ini --ranks 4 --json --tries 50 2>&1)
like "an alternative that changed nothing is not planned again" "$(field "$said" '[x["reason"] for x in r["lost"]]')" \
	'as fast as one that was planned'
unlike "... and the best layout has no key that does nothing" \
	"$(field "$said" 'r["candidates"][0]["ini"]')" 'scatter_gather'

# With 512 ranks the layouts are so many that families are opened in the order of what similar ones cost.  The search
# finds a layout that is faster than those that somebody would try first.
sed 's/^layers = .*/layers = 8/; s/^embed = .*/embed = 2048/; s/^heads = .*/heads = 16/; s/^seq = .*/seq = 512/; s/^global_batch = .*/global_batch = 512/' m.ini >large.ini
large() { heddle plan large.ini --machine dgx-a100 --ranks 512 --json "$@" 2>&1; }
said=$(large --search --tries 6)
best=$(field "$said" 'r["candidates"][0]["step_seconds"]')
for layout in 't.size=1 p.size=1' 't.size=8 p.size=1' 't.size=8 p.size=2' 't.size=2 p.size=4' 't.size=4 p.size=8'; do
	set -- --set t.plugin=tp --set d.plugin=dp --set d.zero=1 --set p.plugin=pp
	for key in $layout d.size=auto; do
		set -- "$@" --set "$key"
	done
	ok "512 ranks: the layout found is faster than $layout" awk -v a="$best" \
		-v b="$(field "$(large "$@")" 'r["step_seconds"]')" 'BEGIN { exit !(a > 0 && a < b) }'
done

# The search writes an ordinary layout with the same batch, which takes as long as was predicted.
said=$(search --ranks 4 --out best.ini --top 3)
found=$(search --ranks 4 --json)
ok "the best layout is written" test -s best.ini
like "... and a table of the best is printed" "$said" '  1  '
like "... with the reasons why others lost" "$said" 'slower than the best, by their kernels'
ok "check accepts the written layout" heddle check best.ini --ranks 4
like "... which has the batch of the INI" "$(cat best.ini)" 'global_batch = 8'
is "... and plan predicts the same time for it" \
	"$(field "$(heddle plan best.ini --ranks 4 --machine machine.ini --json)" 'r["step_seconds"]')" \
	"$(field "$found" 'r["candidates"][0]["step_seconds"]')"
is "two searches print the same" "$(search --ranks 4 --json)" "$found"

# Memory: a layout that does not fit is not found, and the search prints how much it lacks.
less=$(field "$found" 'r["candidates"][0]["memory_bytes"] * 95 // 100')
fits=$(search --ranks 4 --json --memory "$less")
ok "with less memory the search finds a smaller layout" \
	test "$(field "$fits" 'r["candidates"][0]["memory_bytes"]')" -le "$less"
like "... and prints by how much the others do not fit" \
	"$(field "$fits" '[c["reason"] for c in r["candidates"]]')" 'does not fit: .* more than'
said=$(search --ranks 4 --memory 10K)
is "a search fails if no layout fits" $? 1
like "... and names the smallest layout and the memory it needs" "$said" \
	'no layout fits into 10.2 KB: of the [0-9]* that were planned completely, the smallest needs [0-9.]* KB [(].*4'
like "... with the reasons why layouts were lost" "$said" 'more memory than there is, for their parameters'
alone() { heddle plan m.ini --machine machine.ini --search --space "$tmp/space.ini" --ranks 4 --json "$@" 2>/dev/null; }
said=$(alone --memory 10K)
is "... and so does JSON" \
	"$(field "$said" 'r["candidates"][0]["reason"][:12], len(r["lost"]) > 0')" "('does not fit', True)"

# The INI's own layout is reported with its memory and does not count as a try.
own() { alone --set a.plugin=tp --set a.size=4 "$@"; }
said=$(own --tries 1)
is "JSON says that the INI's own layout fits" \
	"$(field "$said" 'r["given_fits"], r["given_memory_bytes"] > 0')" "(True, True)"
ok "... and with --tries 1 a different one is planned too" test "$(field "$said" "$planned")" -gt 1
is "JSON says if the INI's own layout does not fit" "$(field "$(own --memory 100K)" 'r["given_fits"]')" False

# Twelve neighbours do not fill nodes of 8 ranks evenly, so a sum in two levels is refused.  With tp inside they do.
sed 's/^ranks_per_node = .*/ranks_per_node = 8/; s/^network_bandwidth = .*/network_bandwidth = 1e8/' machine.ini >nodes.ini
printf '[strategy a]\nplugin = tp\nsize = 2\n[strategy b]\nplugin = dp\nchoose = sync=allreduce, sync=hierarchical\n' >levels.ini
on_nodes() { heddle plan m.ini --machine nodes.ini --search --json "$@" 2>&1; }
like "what one strategy alone refuses is tried between the ranks of others" \
	"$(field "$(on_nodes --space levels.ini --ranks 24 --set train.global_batch=24)" "$first")" 'sync = hierarchical'
printf '[strategy b]\nplugin = dp\nsize = 2..\n' >wide.ini
is "a strategy of 40,000 ranks is possible alone" \
	"$(field "$(on_nodes --space wide.ini --ranks 40000 --set train.global_batch=40000)" "$planned")" 1

# Within a node, this machine reaches one hundredth of the bandwidth.  So small plans on one node give no bound for
# layouts whose groups are on several.
sed 's/^node_bandwidth = .*/node_bandwidth = 1e9\nnode_efficiency = 0.01\ncards = 2/' machine.ini >rates.ini
printf '[strategy a]\nplugin = tp\nsize = 1..2\n[strategy b]\nplugin = dp\nsize = 1..2\n[strategy c]\nplugin = pp\nsize = 1..2\nchoose = schedule=1f1b\n[vary train.micro_batch]\nvalues = 1, 2\n' >rates-space.ini
rates() { heddle plan m.ini --machine rates.ini --ranks 4 --search --space "$tmp/rates-space.ini" --json --tries 0 2>&1; }
said=$(rates)
is "a network faster than a node by its efficiency: the search finds the best of all layouts" \
	"$(field "$said" "$first")" "$(field "$(HD_TEST_SEARCH_ALL=1 rates)" "$first")"

# The user's own section keeps its name and the keys that the space does not choose.  A section that the space does not
# know is refused.  With two layers the best layout has that section by 7 %; with four, a pipeline without it is 0.9 %
# faster.
said=$(search --ranks 4 --out own.ini --set model.layers=2 --set mine.plugin=dp --set mine.size=4 --set mine.bucket=1M)
like "the INI's own layout is compared with the best" "$said" 'the layout of the INI: '
like "... and the names of its sections are kept" "$(cat own.ini)" 'strategy mine'
like "... as are keys that the space does not choose" "$(cat own.ini)" 'bucket = 1M'
# The INI's own layout need not be a point of the space.  If it is the fastest, it is found as it stands.
printf '[strategy b]\nplugin = dp\n[vary train.micro_batch]\nvalues = 1, 2\n' >few.ini
few() { heddle plan m.ini --machine machine.ini --search --space few.ini --ranks 2 --set b.plugin=dp --set b.bucket=1M "$@" 2>&1; }
said=$(few --json --out verbatim.ini --set train.micro_batch=4)
is "a micro_batch that the space does not list: the fastest candidate is the INI's own layout" \
	"$(field "$said" "'micro_batch = 4' in r['candidates'][0]['ini'], r['candidates'][0]['step_seconds'] == r['given_step_seconds']")" \
	"(True, True)"
like "... which --out writes" "$(cat verbatim.ini)" '^micro_batch = 4'
# Without train.micro_batch, the engine chooses one.  The space lists it, so the search begins with this layout.
printf '[strategy a]\nplugin = tp\n[strategy c]\nplugin = pp\nchoose = schedule=zb\n[vary train.micro_batch]\nvalues = 1, 2, 8\n' >eights.ini
like "a micro_batch that the engine chose is found among those of the space" "$(heddle plan m.ini --machine machine.ini \
	--search --space eights.ini --ranks 4 --set a.plugin=tp --set a.size=4 --tries 1 2>&1)" '^ .*a 4; micro_batch=8'

said=$(search --ranks 4 --set x.plugin=ep --set x.size=1)
is "a strategy that is not in the space is refused" $? 1
like "... and named" "$said" 'strategy x.*no strategy of its plugin'
# Two sections of one plugin, of which the space has one; and a section with the name of another plugin in the space.
two() { few --set b.size=2 --set n.plugin=dp --set n.size=1 "$@"; }
like "a second section of a plugin with other keys is refused" "$(two --set n.bucket=2M)" \
	'.strategy b. has the same plugin and other keys that a search keeps'
unlike "... and one with the same keys is not" "$(two --set n.bucket=1M --json)" 'given twice|refused'
said=$(heddle plan m.ini --machine machine.ini --ranks 4 --search --space eights.ini --tries 1 --json --set c.plugin=tp --set c.size=2 2>&1)
unlike "a section may have the name of another plugin's in the space" "$said" 'section given twice'
like "... which gets a different name" "$said" 'strategy c2.[^"]*plugin = pp'

# Without --tries 0, alternatives of also are tried near the best, and count if they are planned.
said=$(heddle plan m.ini --machine machine.ini --search --space also.ini --ranks 4 --set train.micro_batch=1 2>&1)
like "layouts that are planned near the best are counted" "$said" '^2 layouts: 2 planned completely'
like "... and it is not claimed that no other is faster" "$said" '^alternatives of also were tried only near the best'
unlike "... at all" "$said" 'none of them that is possible'
printf '[strategy b]\nplugin = dp\nsize = 4..\n[strategy a]\nplugin = tp\n' >least.ini
said=$(heddle plan m.ini --machine machine.ini --ranks 4 --search --space least.ini --set b.plugin=dp --set b.size=2 --set a.plugin=tp --set a.size=2 2>&1)
unlike "the INI's own layout is no point of a space that excludes its sizes" "$said" ' [ab] 2'
printf '[strategy b]\nplugin = dp\nsize = 1..0\n' >least.ini
like "a range without sizes is refused, with its line" \
	"$(heddle plan m.ini --machine machine.ini --ranks 4 --search --space least.ini 2>&1)" \
	'least.ini:3: .strategy b. size: 1..0: LEAST is greater than MOST'

said=$(heddle plan m.ini --machine machine.ini --search 2>&1)
like "a search without a number of ranks is refused" "$said" 'needs the number of ranks'
said=$(heddle plan m.ini --machine machine.ini --ranks 1 --out x.ini 2>&1)
like "--out without --search is refused" "$said" '\-\-out needs --search'
done_testing
