#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: run_tests.pl [-v] [--tier NAME] [--built SECONDS] TEST...	(from the build folder)
#
# Runs HD_TEST_JOBS tests at the same time, by default one more than there are processors. t/lib/order.txt lists tests
# that start first or must run alone. The file test-times gets each test's processor time and elapsed time, longest
# first. With --tier all tests of that tier are run, and their sum must be within its budget of processor time, which
# other programs on the machine do not change. --built is the time of the build. HD_TEST_UNTIL, in seconds since 1970:
# tests that have not begun by then are left out and named, which is a failure if they are more than half. The last
# line counts checks.
use strict;
use warnings;
use Cwd 'abs_path';
use Digest::MD5 'md5_hex';
use File::Basename;
use File::Temp 'tempdir';
use TAP::Harness;
use Time::HiRes 'time';

# In seconds.  On two processors, with some waiting, these are about 10 minutes for check, 25 for ci with the build, 2
# for smoke.
my %budget = (smoke => 120, check => 1020, ci => 2700);
# The budgets are for a processor that does the work of unit() in this time. A slower one may take proportionally more,
# up to twice.
my $reference = 0.36;
my @smoke = qw(t0000 t1000 t1040 t1060 t2002 t3000 t5001 t6160);

my ($verbose, $tier, $built) = (0, '', 0);
while (@ARGV && $ARGV[0] =~ /^-/) {
	my $option = shift;
	if ($option eq '--one') { exit one(@ARGV) }
	elsif ($option eq '-v') { $verbose = 1 }
	elsif ($option eq '--tier') { $tier = shift // '' }
	elsif ($option eq '--built') { $built = shift // 0 }
	else { stop("no option $option") }
}
stop("tier $tier: it must be smoke, check or ci") if $tier && !$budget{$tier};

sub stop {
	print STDERR "run_tests.pl: @_\n";
	exit 2;
}

# Runs one test, and records the time of it and all its processes; called by the harness.
sub one {
	my @test = @_;
	my $from = time;
	if ($ENV{HD_TEST_UNTIL} && $from > $ENV{HD_TEST_UNTIL}) {
		record('left ' . basename $test[0]);
		print "1..0 # SKIP not begun in time\n";
		return 0;
	}
	# Each test has its own cache of timings.
	$ENV{XDG_CACHE_HOME} = tempdir(CLEANUP => 1, TMPDIR => 1);
	# Each test has its own counts, if objects were built with --coverage (t/lib/coverage_run.pl).
	my $counts = ($ENV{HD_TEST_COUNTS} // '') . '/' . basename $test[0];
	$ENV{GCOV_PREFIX} = "$counts.part" if $ENV{HD_TEST_COUNTS};
	my $pid = fork // die "fork: $!\n";
	if (!$pid) {
		exec { $test[0] } @test or die "$test[0]: $!\n";
	}
	waitpid $pid, 0;
	my $status = $?;
	my (undef, undef, $user, $system) = times;
	record(sprintf '%.2f %.2f %s', $user + $system, time - $from, basename $test[0]);
	rename "$counts.part", $counts and utime undef, undef, $counts if $ENV{HD_TEST_COUNTS} && !$status;
	kill $status & 127, $$ if $status & 127;
	return $status >> 8;
}

# Appends a line to the file that all tests write.
sub record {
	open my $out, '>>', $ENV{HD_TEST_TIMES} or die "$ENV{HD_TEST_TIMES}: $!\n";
	syswrite $out, "@_\n";
	close $out;
}

# Returns the processor time of a fixed piece of work, on average over all processors, which do it at the same time as
# in a run of tests.
sub unit {
	my @children = map {
		my $pid = fork // die "fork: $!\n";
		if (!$pid) {
			my $x = 0;
			$x = ($x * 3 + $_) % 1000003 for 1 .. 8_000_000;
			exit 0;
		}
		$pid;
	} 1 .. processors();
	my (undef, undef, @before) = times;
	waitpid $_, 0 for @children;
	my (undef, undef, @after) = times;
	return ($after[0] + $after[1] - $before[0] - $before[1]) / @children;
}

sub processors {
	my $n = `nproc 2>/dev/null`;
	return $n =~ /(\d+)/ ? $1 : 1;
}

my @tests = $tier eq 'smoke' ? grep { my $t = $_; grep { basename($t) =~ /^$_-/ } @smoke } @ARGV : @ARGV;
my $me = abs_path $0;
# Tests of order.txt by kind, in its order.
my %kind = map { $_ => [] } qw(alone quiet waits long);
my %listed;
open my $list, '<', dirname($me) . '/order.txt' or die "order.txt: $!\n";
while (<$list>) {
	my ($kind, $name) = /^([a-z]+)\t(t\d\S*)\t\S/ or next;
	my @named = grep { basename($_) =~ /^\Q$name\E[-.]/ } @tests;
	push @{ $kind{$kind} }, @named;
	$listed{$_} = 1 for @named;
}

# Among the others, those that took longest in the last run start first, so that no processor works alone at the end.
my %took;
if (open my $last, '<', 'test-times') {
	/^\S+ (\S+) (t\S+)$/ and $took{$2} = $1 for <$last>;
}
# Where a tier may leave tests out, scripts of unknown duration have another order at each commit, so that none is always
# the last. Programs and the checks of sources (t0...), which are short, come before them.
my $commit = `git -C '@{[ dirname $me ]}' rev-parse --short HEAD 2>/dev/null` || "unknown\n";
my %turn = map { $_ => $tier && $ENV{HD_TEST_UNTIL} && /\.sh$/ && basename($_) !~ /^t0/ ? md5_hex($commit . basename $_) : '' } @tests;
my @others = sort { ($took{basename $b} // 1e9) <=> ($took{basename $a} // 1e9) || $turn{$a} cmp $turn{$b} }
	grep { !$listed{$_} } @tests;
my @lanes = map { my $lane = $_; [ map { $kind{quiet}[$_] } grep { $_ % 2 == $lane } 0 .. $#{ $kind{quiet} } ] } 0, 1;

# Returns a rule of the harness to run tests one after another.
sub in_turn { return map { +{ seq => $_ } } @_ }

# A test with a sweep runs a representative part of it in a tier or when coverage is counted.  It runs the complete
# sweep when it is run by itself and in check-sweeps.
$ENV{HD_TEST_TIER} = $tier || ($ENV{HD_TEST_COUNTS} ? 'ci' : '');
$ENV{HD_TEST_TIMES} = abs_path('.') . "/test-times.$$";
unlink $ENV{HD_TEST_TIMES};
my $harness = TAP::Harness->new({ verbosity => $verbose, exec => [ $^X, $me, '--one' ], jobs => $ENV{HD_TEST_JOBS} || processors() + 1,
	color => -t STDOUT ? 1 : 0, failures => 1, comments => 1,
	rules => { seq => [ in_turn(@{ $kind{alone} }), { par => [ map { +{ seq => [ in_turn(@$_) ] } } grep { @$_ } @lanes ] },
		{ par => [ { seq => [ in_turn(@{ $kind{waits} }) ] }, { par => '**' } ] } ] } });
my $begun = time;
my $all = $harness->runtests((map { @{ $kind{$_} } } qw(alone quiet waits long)), @others);
my $clock = time - $begun;

my $failed = $all->failed;
# A test that crashed, printed no plan or ended with an error counts as failed, although no check of it failed.
for my $name ($all->descriptions) {
	my ($test) = $all->parsers($name);
	$failed++ if !$test->failed && $test->has_problems;
}

my (@times, @left, $sum);
if (open my $in, '<', $ENV{HD_TEST_TIMES}) {
	my @lines = <$in>;
	@left = map { /^left (\S+)/ ? $1 : () } @lines;
	@times = sort { ($b =~ /^(\S+)/)[0] <=> ($a =~ /^(\S+)/)[0] } grep { !/^left / } @lines;
	close $in;
	unlink $ENV{HD_TEST_TIMES};
}
$sum += (/^(\S+)/)[0] for @times;
$sum //= 0;
if ($tier) {
	open my $out, '>', 'test-times' or die "test-times: $!\n";
	print $out "# processor's seconds, the clock's, test; tier $tier at $commit", @times;
	printf $out "# sum %.1f of the processor, %.1f by the clock, build %.1f\n", $sum, $clock, $built;
	close $out;
}
printf "%.0f s of the processor, %.0f s by the clock%s; most:\n", $sum, $clock, $built ? sprintf(', and %.0f s to build', $built) : '';
print map { "  $_" } @times[0 .. ($#times < 4 ? $#times : 4)];
my $over = 0;
if ($tier) {
	my $slower = unit() / $reference;
	my $limit = $budget{$tier} * ($slower < 1 ? 1 : $slower > 2 ? 2 : $slower);
	$over = $sum + $built > $limit;
	printf "%s - budget of tier %s: %.0f of %.0f s of the processor\n", $over ? 'not ok' : 'ok', $tier, $sum + $built, $limit;
	$over ? $failed++ : $all->passed;
}
if (@left) {
	printf "%d of %d tests had not begun in time, and are left out: %s\n", scalar @left, scalar @tests, join ' ', @left;
	$failed++ if @left * 2 > @tests;
}
my $passed = $all->passed - $all->skipped + ($tier && !$over ? 1 : 0);
printf "%d skipped\n", scalar $all->skipped if $all->skipped;
printf "%d passed, %d failed\n", $passed, $failed;
exit($failed || !$all->passed ? 1 : 0);
