#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: coverage_run.pl BUILD COUNTS TEST...	(from the build folder BUILD, with objects compiled by gcc --coverage)
# Runs tests and adds up their coverage of engine/ and plugins/ in COUNTS/sum. Each test has its own counts,
# COUNTS/TEST, or COUNTS/TEST.part until it has passed.  A test that passed after its file and all objects were built is
# not run again, so an interrupted run resumes.  A changed test replaces its counts.  Counts of a failed test are added
# too.
use strict;
use warnings;
use Cwd 'abs_path';
use File::Basename;
use File::Copy 'copy';
use File::Find;
use File::Path qw(make_path remove_tree);

my ($build, $counts, @tests) = @ARGV;
make_path($counts);
($build, $counts) = map { abs_path $_ } $build, $counts;
my @notes = files($build, qr/\.gcno$/);
@notes or die "coverage_run.pl: $build has no objects made with --coverage\n";
my $made = 0;
for (@notes) {
	my $at = (stat "$build/$_")[9];
	$made = $at if $at > $made;
}

# Returns the files below engine/ and plugins/ of a folder whose names match, relative to the folder.
sub files {
	my ($root, $match) = @_;
	my @found;
	find({ no_chdir => 1, wanted => sub { push @found, substr($_, 1 + length $root) if $_ =~ $match } },
		grep { -d } "$root/engine", "$root/plugins");
	return sort @found;
}

sub is_done {
	my ($test) = @_;
	my $at = (stat "$counts/" . basename $test)[9] or return 0;
	return $at > $made && $at > ((stat $test)[9] // 0);
}

my @left = grep { !is_done($_) } @tests;
for my $name (map { basename $_ } @left) {
	remove_tree("$counts/$name", "$counts/$name.part");
	make_path("$counts/$name.part");
}
printf "%d of %d tests have counts of these objects; %d to run\n", @tests - @left, scalar @tests, scalar @left;
if (@left) {
	$ENV{HD_TEST_COUNTS} = $counts;
	system $^X, dirname(abs_path $0) . '/run_tests.pl', @left;
}

# gcov-tool adds up the counts of two folders, so the folders of all tests are merged in pairs until one is left.
sub merge {
	my @trees = @_;
	my $n = 0;
	remove_tree("$counts/merge");
	while (@trees > 1) {
		my ($x, $y) = splice @trees, 0, 2;
		my $out = "$counts/merge/" . $n++;
		make_path($out);
		system('gcov-tool', 'merge', $x, $y, '-o', $out) == 0 or die "gcov-tool merge $x $y: failed\n";
		remove_tree($_) for grep { m{^\Q$counts/merge/} } $x, $y;
		push @trees, $out;
	}
	return $trees[0];
}

my @parts = grep { !is_done($_) } @tests;
my $sum = merge(grep { -d } map { my $name = basename $_; map { "$counts/$name$_$build" } '', '.part' } @tests);
remove_tree("$counts/sum");
for my $file ((map { [ $build, $_ ] } @notes), $sum ? map { [ $sum, $_ ] } files($sum, qr/\.gcda$/) : ()) {
	my ($from, $name) = @$file;
	make_path(dirname "$counts/sum/$name");
	copy("$from/$name", "$counts/sum/$name") or die "$counts/sum/$name: $!\n";
}
remove_tree("$counts/merge");
print "failed, or were stopped: @{[ map { basename $_ } @parts ]}\n" if @parts;
exit(@parts ? 1 : 0);
