#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each folder of examples/ with a Makefile must build from an installed prefix alone, and its own INI, made small, must
# be accepted.  A V schedule with two backwards exchanged is refused.  DiLoCo trains under mpirun.  Its checkpoints
# contain the members' own weights, with which a resumed run continues.  Evaluation, and another number of members,
# start from the weights agreed last.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

[ -f "$build/Makefile" ] || skip_all "no Makefile in the build folder"
command -v pkg-config >/dev/null || skip_all "no pkg-config"
root=$tmp/root
make -C "$build" install-heddleincludeHEADERS install-pkgconfigDATA DESTDIR="$root" >log 2>&1 ||
	{ tap_comment <log; skip_all "make install does not work here"; }
pc=$(find "$root" -name heddle.pc)
made() {
	env PKG_CONFIG_PATH="${pc%/*}" make -s -C "$1" CC="${CC:-cc}" NVCC=no-nvcc \
		CFLAGS="-O2 -Wall -Wextra -Werror"
}
for makefile in "$src"/examples/*/Makefile; do
	folder=${makefile%/*}
	name=${folder##*/}
	cp -r "$folder" "$name"
	rm -f "$name"/*.o "$name"/*.so
	ok "$name: its Makefile builds it" made "$name"
	ini=$(basename "$name"/*.ini)
	sed -e 's/^embed = .*/embed = 32/' -e 's/^seq = .*/seq = 32/' -e 's/^steps = .*/steps = 5/' \
		-e 's/^train = .*/train = text.txt/' "$name/$ini" >"$name/small.ini"
	ranks=1
	grep -q '^\[strategy' "$name/small.ini" && ranks=2
	ok "$name: its INI is accepted" heddle check "$name/small.ini" --ranks "$ranks"
done

cp -r v-schedule exchanged
sed -i 's/{ HD_UNIT_B, 1 }, { HD_UNIT_B, 0 } }/{ HD_UNIT_B, 0 }, { HD_UNIT_B, 1 } }/' exchanged/v_schedule.c
rm -f exchanged/*.so
ok "two backwards exchanged: builds" made exchanged
out=$(heddle check exchanged/small.ini --ranks 2 2>&1)
is "two backwards exchanged: refused" $? 1
like "two backwards exchanged: the message names stage and unit" "$out" '^heddle: .*stage [01] .*B[0-9]'

# -- ema_server: a plugin with a rank without a model
# ---------------------------------------------------------------------------------
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy replicas]\nplugin = ema-server/ema_server.so\nkeep = 0\n'
} >ema.ini
cat >means.pl <<'EOT'
my ($weights, $states, $prefix) = @ARGV;
sub tensors {
	open(my $f, '<:raw', $_[0]) or die "$_[0]: $!";
	read($f, my $n, 8);
	read($f, my $head, unpack('Q<', $n));
	local $/;
	my ($data, %t) = (scalar <$f>);
	while ($head =~ /"([^"]+)": *\{"dtype": *"F32", *"shape": *\[[^\]]*\], *"data_offsets": *\[(\d+), *(\d+)\]\}/g) { $t{$1} = substr($data, $2, $3 - $2) }
	return \%t;
}
my ($w, $s) = (tensors("$weights/model.safetensors"), tensors("$states/heddle/optimizer.safetensors"));
my ($n, $same) = (0, 0);
for my $state (grep { /^\Q$prefix\E/ } keys %$s) {
	(my $name = substr($state, length $prefix)) =~ s/\.$//;
	my ($k) = grep { /(^|\.)\Q$name\E$/ } keys %$w;
	next unless defined $k;
	$n++, $same += $w->{$k} eq $s->{$state};
}
print "$same of $n\n";
EOT
ok "ema_server: two replicas and a server train" heddle_mpi 3 train ema.ini --set replicas.size=3 --set log.metrics=ema.jsonl \
	--set checkpoint.dir=ema --set checkpoint.every=1 --set checkpoint.keep=9
ok "ema_server: two replicas of dp" heddle_mpi 2 train tiny.ini --set log.metrics=two.jsonl --set checkpoint.dir=two
digits() { losses "$1" | cut -c1-7; }
losses() { sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([0-9.]*\).*/\1 \2/p' "$1"; }
is "ema_server: the losses are those of dp" "$(digits ema.jsonl)" "$(digits two.jsonl)"
if command -v perl >/dev/null; then
	like "ema_server: with keep = 0 the mean is the weights that the step began with" "$(perl means.pl ema/step-00000002 ema/step-00000003 replicas.mean.)" '^([1-9][0-9]*) of \1$'
	ok "ema_server: a run resumes" \
		heddle_mpi 3 train ema.ini --set replicas.size=3 --set checkpoint.dir=ema --set checkpoint.resume=auto \
		--set train.steps=4 --set replicas.keep=0.5
	like "ema_server: with keep = 0.5 it is not" "$(perl means.pl ema/step-00000003 ema/step-00000004 replicas.mean.)" '^0 of [1-9]'
fi

ok "ema_server: conform runs it" heddle conform ema-server/ema_server.so --only 'one rank, gpt2: ema_server 3' --no-runs
like "ema_server: conform neither fails nor skips it" "$(cat .ok)" '1 passed, 0 failed, 0 skipped'

# A variant that pushes the weights that workers have updated.  The server gets them in its own update, and must not
# wait for them before the norm.
cp -r ema-server behind
sed -i -e '/struct hd_node \*sync/d; s/hd_cursor(s->g, p, sync, all)/hd_cursor(s->g, p, update, all)/' \
	-e 's/push\.x = update->ins\[0\];/push.x = s->g->updated(p, update->ins[0]);/; s/"mean"/update->ins[0]->name/' behind/ema_server.c
rm -f behind/*.so
ok "ema_server: the variant with updated weights builds" made behind
ok "ema_server: conform runs the variant" \
	heddle conform behind/ema_server.so --only 'one rank, gpt2: ema_server 3' --no-runs
like "ema_server: conform neither fails nor skips the variant" "$(cat .ok)" '1 passed, 0 failed, 0 skipped'

# -- diloco ------------------------------------------------------------------------------------------------------------------
diloco() { # RANKS args...: trains members that agree on their weights every 2 steps
	ranks=$1
	shift
	heddle_mpi "$ranks" train diloco.ini --set "replicas.size=$ranks" "$@"
}
losses() { sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([0-9.]*\).*/\1 \2/p' "$1"; }
evaluated() { json "$(heddle eval "$1" --data text.txt --json)" loss; }
{
	sed '/^\[strategy/,$d; s/^steps = .*/steps = 5/' tiny.ini
	printf '[strategy replicas]\nplugin = diloco/diloco.so\nevery = 2\n'
} >diloco.ini
ok "diloco: two members train" \
	diloco 2 --set log.metrics=whole.jsonl --set checkpoint.dir=whole --set checkpoint.every=1 --set checkpoint.keep=9
ok "diloco: a run resumes between two agreements" diloco 2 --set log.metrics=resumed.jsonl --set checkpoint.dir=rest \
	--set checkpoint.resume=whole/step-00000003
is "diloco: it has the losses of the run that was not stopped" \
	"$(losses resumed.jsonl)" "$(losses whole.jsonl | grep '^[45]')"
is "diloco: evaluation uses the weights agreed last" \
	"$(evaluated whole/step-00000003)" "$(evaluated whole/step-00000002)"
[ "$(evaluated whole/step-00000004)" != "$(evaluated whole/step-00000002)" ]
tap_result $? "diloco: these change when members agree"
ok "diloco: four members resume from two" \
	diloco 4 --set log.metrics=four.jsonl --set checkpoint.dir=no --set checkpoint.resume=whole/step-00000003
ok "diloco: replicas of dp resume from its checkpoint" \
	heddle_mpi 2 train tiny.ini --set train.steps=4 --set log.metrics=dp.jsonl --set checkpoint.dir=dp \
	--set checkpoint.resume=whole/step-00000003
like "diloco: they do not add up the moments of its members" "$(cat "$tmp/.ok")" \
	'[0-9]+ states that each member keeps for itself start over: .*[.][mv] was saved by 2 members, this run keeps one for all'
is "diloco: four members start where two agreed" "$(losses four.jsonl | sed -n 's/^4 //p' | cut -c1-6)" \
	"$(losses dp.jsonl | sed -n 's/^4 //p' | cut -c1-6)"
[ "$(losses whole.jsonl | sed -n 's/^4 //p' | cut -c1-6)" != "$(losses dp.jsonl | sed -n 's/^4 //p' | cut -c1-6)" ]
tap_result $? "diloco: that is not where the two were"

# Member 1's gradients overflow, but its loss does not: of its own weights, one layer gives 0 between others of 1e25.
# Its norm is its own, so only it sees the overflow.  All must end with its message, and none may wait for one that
# ended.
cat >overflow.pl <<'EOT'
my ($path) = @ARGV;
open(my $f, '+<:raw', $path) or die "$path: $!";
read($f, my $size, 8);
$size = unpack('Q<', $size);
read($f, my $header, $size);
sub put { my ($name, $value, $most) = @_;
	$header =~ /"([^"]*\.local\.[^"]*\Q$name\E\@1)": *\{[^}]*"data_offsets": *\[(\d+), *(\d+)\]/ or die "$path: no $name\@1";
	my $n = ($3 - $2) / 4;
	seek($f, 8 + $size + $2, 0);
	print $f pack('f<*', ($value) x ($most && $most < $n ? $most : $n)); }
put('h.1.mlp.fc.weight', 0);
put('h.1.mlp.fc.bias', 0);
put('h.1.mlp.proj.weight', 1e25, 1);
put('h.1.ln_2.weight', 1e25);
EOT
if command -v perl >/dev/null; then
	cp -r whole/step-00000003 spoilt
	perl overflow.pl spoilt/heddle/optimizer.safetensors || echo "# perl failed"
	rm spoilt/heddle/sums.json
	diloco 2 --set checkpoint.dir=after --set checkpoint.resume=spoilt --set train.watchdog=20 >said 2>&1
	is "diloco: a norm that is not finite on one member ends all members" \
		"$? $(failures <said | wc -l | tr -d ' ')" "1 1" || tap_comment <said
	like "diloco: with its message" "$(failures <said)" 'step 4: loss [0-9.]+, gradient norm (inf|nan); first on rank 1 .*layer 1 \(backward\) computed a value .* not finite'
fi
done_testing
