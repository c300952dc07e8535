#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: wgmma_operands.pl FILE.ptx...
#
# A product of four warps (wgmma) reads its left operand from registers until it is waited for.  The compiler before
# ptxas considers it complete where it begins, and may compute the next operand in the same registers.  This prints
# writes to such registers, by kernel, and the number of products.  Instructions are read in the order of the file: a
# loop is read once.
use strict;
use warnings;

my ($products, $writes) = (0, 0);
for my $file (@ARGV) {
	my ($entry, %begun, @under_way) = ('');
	open my $f, '<', $file or die "$file: $!\n";
	while (<$f>) {
		if (/\.entry (\w+)/) {
			($entry, %begun, @under_way) = ($1);
		} elsif (/wgmma\.mma_async/) {
			$products++;
			$begun{$_} = 1 for /k16[^{]*\{[^}]*\},\s*\{([^}]*)\}/ ? $1 =~ /(%r\d+)/g : ();
		} elsif (/wgmma\.commit_group/) {
			push @under_way, {%begun};
			%begun = ();
		} elsif (/wgmma\.wait_group\S*\s+(\d+)/) {
			shift @under_way while @under_way > $1;
		} elsif (/^\s*(?:@\S+\s+)?(?!st\.)[\w.]+\s+(\{[^}]*\}|%r\d+)\s*,/) {
			for my $r ($1 =~ /(%r\d+)/g) {
				next unless $begun{$r} || grep { $_->{$r} } @under_way;
				$writes++;
				print "$file:$.: $entry writes $r, which a product under way reads\n" if $writes <= 5;
			}
		}
	}
}
print "$products products, $writes writes to what they read\n";
exit($writes > 0);
