#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: coverage.pl [--list] SOURCE BUILD
# What the tests have run of engine/ and plugins/, in the build folder BUILD whose objects gcc has made with --coverage: a table
# of lines and branches by folder and file, and the branches that no test has taken and SOURCE/t/coverage.txt has no reason
# for; the status is 1 if there are such. --list: these alone, as lines for that file, to be given a reason each.
use strict;
use warnings;
use File::Find;
use JSON::PP;

my $list = @ARGV && $ARGV[0] eq '--list' ? shift : 0;
my ($source, $build) = @ARGV;
-d "$build/engine" or die "coverage.pl: $build/engine is not there\n";

# Objects, and so files, that nothing has run have notes too, and no counts.
my @notes;
find({ no_chdir => 1, wanted => sub { push @notes, $_ if /\.gcno$/ } }, grep { -d } "$build/engine", "$build/plugins");

# $lines{FILE}{LINE}: [count, function, [branch counts]]; an object that is linked twice adds up.
my %lines;
for my $note (@notes) {
	open my $gcov, '-|', 'gcov', '-j', '-t', '-b', $note or die "gcov: $!\n";
	local $/;
	my $text = <$gcov>;
	close $gcov;
	next unless $text;
	for my $f (@{ decode_json($text)->{files} }) {
		my $file = $f->{file};
		$file =~ s{^.*?/?((?:engine|plugins)/)}{$1} or next;
		for my $l (@{ $f->{lines} }) {
			my $at = $lines{$file}{ $l->{line_number} } //= [ 0, $l->{function_name} // '', [] ];
			$at->[0] += $l->{count};
			$at->[2][$_] += $l->{branches}[$_]{count} for 0 .. $#{ $l->{branches} };
		}
	}
}

# Rules and lines: REASON <tab> FUNCTION or * <tab> text of the line, of a rule as a regular expression.
my (@rules, %known, %used);
if (open my $kept, '<', "$source/t/coverage.txt") {
	while (<$kept>) {
		chomp;
		next if /^#/ || !/\S/;
		my ($reason, $function, $text) = split /\t/, $_, 3;
		die "coverage.txt:$.: a reason, a function and a text, with tabs between\n" unless defined $text;
		if ($text =~ m{^/(.*)/$}) {
			push @rules, [ $reason, $function eq '*' ? qr/./ : qr/^(?:$function)$/, qr/$1/, $_ ];
		} else {
			push @{ $known{$function} }, [ bare($text), $reason, $_ ];
		}
	}
}

# A line as the formatter may break it elsewhere tomorrow: without blanks, and equal to one that it begins or that begins it.
sub bare {
	(my $text = shift) =~ s/\s+//g;
	return $text;
}

sub begins {
	my ($x, $y) = @_;
	($x, $y) = ($y, $x) if length $x > length $y;
	return $x eq $y || length $x >= 16 && substr($y, 0, length $x) eq $x;
}

sub reason {
	my ($function, $text, $file) = @_;
	my $bare = bare($text);
	for my $k (@{ $known{$function} // [] }) {
		next unless begins($bare, $k->[0]);
		$used{ $k->[2] }++;
		return $k->[1];
	}
	for my $r (@rules) {
		next unless "$function" =~ $r->[1] && $text =~ $r->[2];
		$used{ $r->[3] }++;
		return $r->[0];
	}
	return undef;
}

my (%sum, %why, @open);
for my $file (sort keys %lines) {
	open my $in, '<', "$source/$file" or next;
	my @text = <$in>;
	my ($folder) = $file =~ m{^(.*)/};
	for my $n (sort { $a <=> $b } keys %{ $lines{$file} }) {
		my ($count, $function, $branches) = @{ $lines{$file}{$n} };
		my $missed = grep { !$_ } @$branches;
		for my $s ($sum{$file} //= [ (0) x 4 ], $sum{"$folder/"} //= [ (0) x 4 ], $sum{' all'} //= [ (0) x 4 ]) {
			$s->[0]++, $s->[1] += $count > 0, $s->[2] += @$branches, $s->[3] += @$branches - $missed;
		}
		next unless $missed;
		(my $text = $text[$n - 1] // '') =~ s/^\s+|\s+$//g;
		$text =~ s/\s+/ /g;
		my $reason = reason($function, $text, $file);
		if (defined $reason) { $why{$reason} += $missed }
		else { push @open, [ $file, $n, $function, $text, $missed, $count ] }
	}
}

my %said;
if ($list) {
	for my $o (@open) {
		my $line = "?\t$o->[2]\t$o->[3]\n";
		print $line unless $said{$line}++;
	}
	exit 0;
}
printf "%-44s %8s %7s %8s %7s\n", '', 'lines', 'run', 'branches', 'taken';
for my $what (sort keys %sum) {
	my ($l, $r, $b, $t) = @{ $sum{$what} };
	(my $name = $what) =~ s/^ //;
	printf "%-44s %8d %6.1f%% %8d %6.1f%%\n", $name, $l, $l ? 100 * $r / $l : 100, $b, $b ? 100 * $t / $b : 100;
}
print "\nbranches that no test takes, by their reason in t/coverage.txt:\n";
printf "%6d  %s\n", $why{$_}, $_ for sort { $why{$b} <=> $why{$a} } keys %why;
my $unused = grep { !$used{$_} } ((map { $_->[2] } map { @$_ } values %known), map { $_->[3] } @rules);
print "$unused lines of t/coverage.txt are of branches that tests take, or that are no longer there\n" if $unused;
my $missing = 0;
for my $o (@open) {
	print "\nwithout a reason (file:line: function: text):\n" unless $missing;
	$missing += $o->[4];
	printf "%s:%d: %s: %s%s\n", @$o[0 .. 3], $o->[5] ? '' : '	(never run)';
}
printf "%d branches that no test takes have no reason\n", $missing;
exit($missing ? 1 : 0);
