#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: coverage.pl [--list] SOURCE BUILD
# Reports how much of engine/ and plugins/ the tests have run, in the build folder BUILD whose objects gcc compiled with
# --coverage. It prints a table of lines and branches by folder and file; the branches that no test has taken and for
# which SOURCE/t/coverage.txt has no reason; and the reasons there that apply to nothing.  The status is 1 if there are
# such branches or reasons.  --list prints lines for that file, to which a reason must be added.
use strict;
use warnings;
use File::Find;
use JSON::PP;

my $list = @ARGV && $ARGV[0] eq '--list' ? shift : 0;
my ($source, $build) = @ARGV;
-d "$build/engine" or die "coverage.pl: $build/engine is not there\n";

# Objects that no test has run have notes too, but no counts.
my @notes;
find({ no_chdir => 1, wanted => sub { push @notes, $_ if /\.gcno$/ } }, grep { -d } "$build/engine", "$build/plugins");

# $lines{FILE}{LINE}: [count, function, [branch counts]]; counts of an object that is linked twice are added.
# $starts{FILE}{LINE}: a function begins there.
my (%lines, %starts);
for my $note (@notes) {
	open my $gcov, '-|', 'gcov', '-j', '-t', '-b', $note or die "gcov: $!\n";
	local $/;
	my $text = <$gcov>;
	close $gcov;
	next unless $text;
	for my $f (@{ decode_json($text)->{files} }) {
		my $file = $f->{file};
		$file =~ s{^.*?/?((?:engine|plugins)/)}{$1} or next;
		$starts{$file}{ $_->{start_line} } = 1 for @{ $f->{functions} };
		for my $l (@{ $f->{lines} }) {
			my $at = $lines{$file}{ $l->{line_number} } //= [ 0, $l->{function_name} // '', [] ];
			$at->[0] += $l->{count};
			$at->[2][$_] += $l->{branches}[$_]{count} for 0 .. $#{ $l->{branches} };
		}
	}
}

# Rules and lines of coverage.txt, in its order: { reason, function or path, text or expression, line as written, times used, kind }.
# kind: 'never run', 'varies', 'outside' or '' (see the head of coverage.txt).
my (@rules, %known);
open my $kept, '<', "$source/t/coverage.txt" or die "$source/t/coverage.txt: $!\n";
while (<$kept>) {
	chomp;
	next if /^#/ || !/\S/;
	my ($reason, $function, $text) = split /\t/, $_, 3;
	die "coverage.txt:$.: a reason, a function and a text, with tabs between\n" unless defined $text;
	my %r = (reason => $reason, at => $., line => $_, used => 0, kind => $reason =~ /^(never run|varies|outside): / ? $1 : '');
	die "coverage.txt:$.: \"$reason\" is no reason\n" if $reason =~ /^\?|: \?|no test:/;
	if ($text =~ m{^/(.*)/$}) {
		my ($expression, $below, $all) = (qr/$1/, index($function, '/') >= 0, $function eq '*');

		push @rules, { %r, every => $all || $below, path => $below ? qr/^\Q$function\E/ : qr/./,
			function => $all || $below ? qr/./ : qr/^(?:$function)$/, text => $expression };
	} else {
		push @{ $known{$function} }, { %r, text => bare($text) };
	}
}

# The formatter may break a line differently tomorrow, so lines are compared without blanks, and one may be the
# beginning of the other.
sub bare {
	(my $text = shift) =~ s/\s+//g;
	return $text;
}

sub begins {
	my ($x, $y) = @_;
	($x, $y) = ($y, $x) if length $x > length $y;
	return $x eq $y || length $x >= 16 && substr($y, 0, length $x) eq $x;
}

# A line that no test runs needs a reason that says so; a rule for all functions does not apply to it.
sub holds {
	my ($r, $count) = @_;
	return $r->{kind} eq 'varies' || ($r->{kind} eq 'never run') == !$count && !($r->{every} && !$count);
}

# A rule does not apply to a branch to a message that no test sees, unless its reason has a kind (never run, varies or
# outside).
sub reason {
	my ($file, $function, $text, $count, $message) = @_;
	my $bare = bare($text);
	my ($r) = grep { begins($bare, $_->{text}) && holds($_, $count) } @{ $known{$function} // [] };
	($r) = grep { $file =~ $_->{path} && $function =~ $_->{function} && $text =~ $_->{text} && holds($_, $count) &&
		(!$message || $_->{kind}) } @rules unless $r;
	$r->{used}++ if $r;
	return $r ? $r->{reason} : undef;
}

# Calls that refuse an input or tell the user of a failure.
my $tells = qr/\b(?:hd_err_set|hd_plan_fail|hd_section_fail|hd_inst_fail|hd_out_of_turn|host_fail|fail\w*|refuse\w*|wrong|bad|could_not|unknown|written)\(/;

# Returns the lines of a file that have an untaken branch to a message that no test sees.
sub before_messages {
	my ($of, $text) = @_;
	my (%found, $last);
	for my $n (sort { $a <=> $b } keys %$of) {
		my ($count, $function, $branches) = @{ $of->{$n} };
		my $missed = grep { !$_ } @$branches;
		$last = undef if $last && $of->{$last}[1] ne $function;
		$found{$n} = 1 if $count && $missed && $text->[ $n - 1 ] =~ $tells;
		$found{$last} = 1 if !$count && $last && $text->[ $n - 1 ] =~ $tells;
		$last = $missed ? $n : undef if $count;
	}
	return \%found;
}

# A reason "varies" counts as used, whether or not the branch was taken this time.
sub sees {
	my ($file, $function, $text) = @_;
	my $bare = bare($text);
	$_->{used}++ for grep { $_->{kind} eq 'varies' && begins($bare, $_->{text}) } @{ $known{$function} // [] };
	$_->{used}++ for grep { $_->{kind} eq 'varies' && $file =~ $_->{path} && $function =~ $_->{function} && $text =~ $_->{text} } @rules;
}

my (%sum, %why, @open);
for my $file (sort keys %lines) {
	open my $in, '<', "$source/$file" or next;
	my @text = <$in>;
	my ($folder) = $file =~ m{^(.*)/};
	my $messages = before_messages($lines{$file}, \@text);
	for my $n (sort { $a <=> $b } keys %{ $lines{$file} }) {
		my ($count, $function, $branches) = @{ $lines{$file}{$n} };
		my $missed = grep { !$_ } @$branches;
		for my $s ($sum{$file} //= [ (0) x 4 ], $sum{"$folder/"} //= [ (0) x 4 ], $sum{' all'} //= [ (0) x 4 ]) {
			$s->[0]++, $s->[1] += $count > 0, $s->[2] += @$branches, $s->[3] += @$branches - $missed;
		}
		(my $text = $text[$n - 1] // '') =~ s/^\s+|\s+$//g;
		$text =~ s/\s+/ /g;
		sees($file, $function, $text);
		my $begins = $starts{$file}{$n} && !$count;
		next unless $missed || $begins;
		my $reason = reason($file, $function, $text, $count, $messages->{$n});
		if (defined $reason) { $why{$reason} += $missed || 1 }
		else { push @open, [ $file, $n, $function, $text, $missed || 1, $count, $messages->{$n} ] }
	}
}

my %said;
if ($list) {
	for my $o (@open) {
		my $line = ($o->[5] ? '?' : 'never run: ?') . "\t$o->[2]\t$o->[3]\n";
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
my @stale = sort { $a->{at} <=> $b->{at} } grep { !$_->{used} } @rules, map { @$_ } values %known;
my $missing = 0;
for my $o (@open) {
	print "\nwithout a reason (file:line: function: text):\n" unless $missing;
	$missing += $o->[4];
	printf "%s:%d: %s: %s%s\n", @$o[0 .. 3], !$o->[5] ? '	(never run)' : $o->[6] ? '	(to a message)' : '';
}
print "\nreasons for branches that tests take, or that no longer exist:\n" if @stale;
print "coverage.txt:$_->{at}: $_->{line}\n" for @stale;
printf "%d branches that no test takes have no reason, %d reasons apply to nothing\n", $missing, scalar @stale;
exit($missing || @stale ? 1 : 0);
