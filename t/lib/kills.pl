#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: kills.pl HEDDLE MODE N SEED CUT.so LAYOUT...	(in a folder with LAYOUT.ini, each of any number of ranks: "NAME:RANKS")
#
# Starts training as often as necessary for N faults.  After each start a fault happens at a random moment, and the next
# start resumes (resume = auto).  MODE same: always the first layout; the final weights must equal those of an
# undisturbed run, bit for bit.  MODE changed: a random layout at each start; the weights must equal those of one rank
# (one.ini) up to rounding.
#
#	kill	SIGKILL of a rank, of all, or of mpirun, at the start or later; some of them during a save (when its
#		directory exists), some during an evaluation (after the step before it was reported)
#	full	the disk has only a few bytes left; if no disk can be mounted, the size of one rank's files is limited
#	cut	SIGKILL of all, and a loss of everything that no fsync covers (power_cut.c)
#
# Half of the runs save in the background (checkpoint.async).  Prints one line per fault; the last line counts.  The
# status is 0 only if nothing was lost.
use strict;
use warnings;
use Cwd 'getcwd';
use File::Path 'remove_tree';
use Time::HiRes qw(time sleep);

my ($heddle, $mode, $faults, $seed, $cut, @layouts) = @ARGV;
my ($steps, $every, $rate) = (40, 2, 3e-3);
my @always = ('--set', "train.steps=$steps", '--set', "train.lr=$rate", '--set', 'train.deterministic=yes', '--set', 'train.eval_every=3',
	'--set', "checkpoint.every=$every", '--set', 'checkpoint.resume=auto', '--set', 'log.metrics=m.jsonl');
my ($done, $runs, $bad, $top) = (0, 0, 0, getcwd);
my %seen;
my $beside = 0;	# saves are made in the background, while steps go on
mkdir 'disk';
my $mounted = system('mount -t tmpfs -o size=8m none disk 2>/dev/null') == 0;
END { system 'umount disk' if $mounted }
srand $seed;
print "seed $seed\n";
$| = 1;

sub read_file {
	my ($name) = @_;
	open my $f, '<:raw', $name or return undef;
	local $/;
	return scalar <$f>;
}

sub latest {
	my $text = read_file('disk/ck/latest') // '';
	return $text =~ /^step-(\d+)/ ? $1 + 0 : -1;
}

sub wrong {
	print "not ok: @_\n";
	$bad++;
}

# Starts a run in its own process group.  limit: the largest size of a file in bytes, or 0.
sub start {
	my ($layout, $dir, $limit, $recorded) = @_;
	my ($name, $ranks) = split /:/, $layout;
	my @command = ($heddle, 'train', "$name.ini", @always, '--set', "checkpoint.dir=$dir", '--set', 'checkpoint.async=' . ($beside ? 'yes' : 'no'));
	@command = ('mpirun', '-np', $ranks, '--oversubscribe', '--bind-to', 'none', @command) if $ranks > 1;
	my $blocks = int($limit / 512);
	@command = ('sh', '-c', "trap '' XFSZ; ulimit -f $blocks; exec \"\$@\"", 'sh', @command) if $limit;
	my $pid = fork // die "fork: $!\n";
	return $pid if $pid;
	setpgrp;
	open STDIN, '<', '/dev/null';
	open STDOUT, '>', "$top/out";
	open STDERR, '>&', \*STDOUT;
	@ENV{qw(LD_PRELOAD HD_CUT_LOG HD_CUT_BELOW)} = ($cut, "$top/cut.log", "$top/disk/ck") if $recorded;
	exec @command or die "$command[0]: $!\n";
}

# Returns the ranks among a process and its children.
sub ranks_of {
	my ($pid) = @_;
	my @all = map { [ split ] } split /\n/, `ps -eo pid=,ppid=,comm=`;
	return map { $_->[0] } grep { $_->[2] eq 'heddle' && ($_->[1] == $pid || $_->[0] == $pid) } @all;
}

# Waits until the run ends, at most this long.  Returns its status, or undef.
sub wait_for {
	my ($pid, $seconds) = @_;
	for (my $until = time + $seconds; time < $until; sleep 0.01) {
		return $? if waitpid($pid, 1) == $pid;
	}
	return undef;
}

sub wait_for_steps {
	my ($pid) = @_;
	my $from = -s 'm.jsonl' // 0;
	for (my $until = time + 60; time < $until; sleep 0.005) {
		return 0 if (-s 'm.jsonl' // 0) > $from;
		return 1 if waitpid($pid, 1) == $pid;
	}
	return 0;
}

# Waits until a save is under way, or until the step before an evaluation was reported; at most 2 s.
sub aim_at {
	my ($what, $pid) = @_;
	my $from = -s 'm.jsonl' // 0;
	for (my $until = time + 2; time < $until && kill 0, $pid; sleep 0.0005) {
		return 1 if $what eq 'save' && glob('disk/ck/.step-*.tmp');
		next if $what eq 'save' || (-s 'm.jsonl' // 0) <= $from;
		my $all = read_file('m.jsonl') // '';
		return 1 if substr($all, $from) =~ /"step": (\d+), "loss"[^\n]*\n\z/ && $1 % 3 == 0;
	}
	return 0;
}

# Checks that after a fault the other ranks and mpirun end by themselves.
sub end_of {
	my ($pid, $what) = @_;
	return if defined wait_for($pid, 60);
	wrong("$what: still there after 60 s");
	kill 'KILL', -$pid;
	waitpid $pid, 0;
}

sub fault_kill {
	my ($layout) = @_;
	my $early = rand() < 0.25;
	my $moment = $early ? rand(0.6) : rand(0.4);
	my $victim = rand() < 0.15 ? 'mpirun' : rand() < 0.2 ? 'all' : 'rank';
	my $which = int rand 16;
	my $aim = rand() < 0.6 ? (rand() < 0.5 ? 'save' : 'evaluation') : '';
	my $pid = start($layout, 'disk/ck', 0, 0);
	return 0 if !$early && wait_for_steps($pid);
	my @ranks;
	if (!$early && $aim) {	# found before, since a save takes no longer than ps does
		@ranks = sort ranks_of($pid);
		aim_at($aim, $pid) or $aim = '';
	} else {
		$aim = '';
		sleep $moment;
		@ranks = sort ranks_of($pid);
	}
	my @hit = $victim eq 'mpirun' ? $pid : $victim eq 'all' ? @ranks : @ranks ? $ranks[$which % @ranks] : ();
	my $hit = kill 'KILL', @hit;
	$seen{ ($early ? 'at start' : $aim ? ($aim eq 'save' ? 'in a save' : 'in an evaluation') : 'later') . ", $victim" }++ if $hit;
	end_of($pid, "kill of $victim");
	for (my $until = time + 60; $victim eq 'mpirun' && time < $until; sleep 0.05) {
		last if !grep { kill 0, $_ } @ranks;
	}
	return $hit;
}

# Fills a file system of its own, except for a few bytes, once steps are made.  Without the right to mount one, it
# limits the size of one rank's files.
sub fault_full {
	my ($layout) = @_;
	my ($bytes, $moment) = (1024 + int rand 300000, rand 0.05);
	my ($name) = $mounted ? $layout : $layout =~ /:1$/ ? $layout : return 0;
	my $pid = start($name, 'disk/ck', $mounted ? 0 : $bytes, 0);
	my $ended = wait_for_steps($pid);
	sleep $moment if !$ended;
	system "head -c \$((\$(stat -f -c '%a * %S' disk) - $bytes)) /dev/zero >disk/filler 2>/dev/null" if $mounted;
	my $status = $ended ? $? : wait_for($pid, 60);
	end_of($pid, 'full disk') if !defined $status;
	unlink 'disk/filler';
	return 0 if !$status;
	$seen{'disk full'}++;
	my $said = read_file('out') // '';
	my @errors = grep { /^heddle: .*(no room|No space|File too large|cannot be|wrote|is free there)/ } split /\n/, $said;
	my @warnings = grep { / is not saved, and training goes on: / } @errors;
	wrong("disk full, $bytes bytes left: " . (@errors - @warnings) . " messages: $said") if @errors - @warnings != 1;
	return 1;
}

sub parent { return $_[0] =~ m{^(.*)/[^/]*$} ? $1 : '.' }

# Undoes the events of the log that no S covers, the last one first; removed files stay removed.
sub lose {
	my (%data, @names);
	my $lost = 0;
	for (split /\n/, read_file('cut.log') // '') {
		my ($what, $a, $b, $old) = split / /;
		if ($what eq 'W') {
			$data{$a} = 1;
		} elsif ($what eq 'S') {
			delete $data{$a};
			@names = grep { parent($_->{to}) ne $a } @names;
		} elsif ($what eq 'C') {
			push @names, { to => $a };
		} else {
			for my $n (@names) { $n->{to} =~ s{^\Q$a\E(/|$)}{$b$1} }
			for my $path (keys %data) {
				(my $now = $path) =~ s{^\Q$a\E(/|$)}{$b$1} or next;
				delete $data{$path};
				$data{$now} = 1;
			}
			push @names, { to => $b, from => $a, old => $old };
		}
	}
	for my $path (grep { -f } keys %data) {
		truncate $path, 0;
		$lost++;
	}
	for my $n (reverse grep { -e $_->{to} } @names) {
		$lost++;
		if (!$n->{from}) { remove_tree($n->{to}) }
		else { rename $n->{to}, $n->{from} }
		rename $n->{old}, $n->{to} if $n->{from} && $n->{old} ne '-';
	}
	unlink glob('cut.log*');
	return $lost;
}

sub fault_cut {
	my ($layout) = @_;
	my $moment = rand(0.4);
	unlink glob('cut.log*');
	my $pid = start($layout, 'disk/ck', 0, 1);
	my $ended = wait_for_steps($pid);
	sleep $moment if !$ended;
	kill 'KILL', $pid, ranks_of($pid);
	end_of($pid, 'power cut') if !$ended;
	for (my $until = time + 10; time < $until && ranks_of($pid); sleep 0.02) { }
	my $before = latest();
	my $lost = lose();
	$seen{$lost ? 'power cut, with losses' : 'power cut'}++;
	# At most the last reported save may be lost: it is reported before its names are on disk.
	wrong("power cut: the newest step was $before and is " . latest()) if $before > $every && latest() < $before - $every;
	return 1;
}

sub floats {
	my $all = read_file($_[0]) // die "$_[0]: $!\n";
	return unpack 'f<*', substr $all, 8 + unpack 'Q<', $all;
}

# With SGD, each step adds at most lr times the gradient, and rounds the weight once.  The gradient's norm is clipped to
# 1, and equal in all layouts up to 1e-5 of that (t6231).
sub close_to {
	my ($one, $other) = @_;
	my @a = floats("$one/model.safetensors");
	my @b = floats("$other/model.safetensors");
	my ($most, $at) = (0, 0);
	return "$other: " . @b . ' weights, not ' . @a if @a != @b;
	for my $i (0 .. $#a) {
		my $over = abs($a[$i] - $b[$i]) / ($steps * ($rate * 1e-5 + (abs($a[$i]) + $rate) * 2**-24));
		$most = $over if !($over <= $most);
	}
	printf "largest difference: %.3f of what rounding explains\n", $most;
	return $most <= 1 ? '' : "$other: $most times what rounding explains";
}

sub compare {
	my $to = sprintf 'step-%08d', $steps;
	if ($mode eq 'changed') {
		my $why = close_to("whole/$to", "disk/ck/$to");
		wrong($why) if $why;
		return;
	}
	for my $f ('model.safetensors', 'heddle/optimizer.safetensors') {
		my $a = read_file("whole/$to/$f") // '';
		wrong("$f is not that of the undisturbed run") if $a eq '' || $a ne (read_file("disk/ck/$to/$f") // '');
	}
}

push @always, '--set', 'train.optimizer=sgd', '--set', 'train.weight_decay=0' if $mode eq 'changed';
my $pid = start($mode eq 'changed' ? 'one:1' : $layouts[0], 'whole', 0, 0);
my $status = wait_for($pid, 120);
if ($status // 1) {
	wrong('the undisturbed run failed: ' . (read_file('out') // ''));
	exit 1;
}

my $begun = -1;
while ($done < $faults || latest() < $steps) {
	my $layout = $mode eq 'same' ? $layouts[0] : $layouts[int rand @layouts];
	if (latest() == $steps) {
		compare();
		$runs++;
		remove_tree('disk/ck');
		next;
	}
	last if $bad > 3;
	if ($done >= $faults) {	# the last run resumes undisturbed
		my $pid = start($layout, 'disk/ck', 0, 0);
		my $status = wait_for($pid, 120);
		wrong("$layout does not go on from step " . latest() . ': ' . (read_file('out') // '')) if $status // 1;
		next;
	}
	my $kind = rand();
	$beside = rand() < 0.5;
	my $from = latest();
	$done++ if $kind < 0.6 ? fault_kill($layout) : $kind < 0.75 ? fault_full($layout) : fault_cut($layout);
	my $said = read_file('out') // '';
	wrong("$layout from step $from: $said") if $said =~ /^heddle: .*(is not a checkpoint|no such directory|truncated|JSON|has no tensor|not that of)/m;
}
compare();
print "$_: $seen{$_}\n" for sort keys %seen;
printf "%d faults in %d runs (%s), seed %d: %s\n", $done, $runs + 1, $mode, $seed, $bad ? "$bad wrong" : 'nothing lost';
exit($bad ? 1 : 0);
