#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: english.pl FILE...	finds sentences that are hard to read, in pages (.md), manual pages (.1, .5), comments
#				and messages of sources (.c, .h), and help texts (all other files)
#
# Prints FILE:LINE: REASON: SENTENCE for each.  A sentence has at most 25 words; code blocks, tables, headings and
# addresses of links do not count, and `code` counts as one word.  Some phrases that are not English are refused.
use strict;
use warnings;

my $most = 25;
my $participle = qr/\w+(?:ed|en|wn|un|ne|me|ad|ilt|ent|ept|ost|ought|aught|ut|et|it|old|ound|eft|ade|oken|orn)/;
my @turns = (
	[qr/\bha(?:s|ve) not\b(?! (?:yet )?(?:been|$participle)\b)/i, 'does not have'],
	[qr/\bwho (?:holds?|has|gets?|sends?|speaks?) what\b/i, 'name the thing (placement)'],
	[qr/\bthat one cannot\b/i, 'say what cannot'],
	[qr/\b(?:is|are) made (?:again|anew)\b/i, 'recomputed'],
	[qr/(?:^|[.;] )(?:Who|Whose|Whoever) [a-z]+ (?!.*\?)/, 'a noun as subject'],
	[qr/(?:^|[.;] )Of (?:files|what|which|all that|a text|text|verbs|who)\b/, 'the subject first'],
	[qr/\bas many as there are (?:of )?(?:them)\b/i, 'say the number'],
	[qr/\b(?:behind|before) it, or not\b/i, 'say which'],
	[qr/\bis said\b(?! to)/i, 'is printed, or follows'],
	[qr/(?:^|[.;] )-> /, 'Returns'],
);

# In a source, a sentence may begin with an identifier, which is in lower case.
our $of_source = 0;
sub sentences {
	my ($text) = @_;
	$text =~ s/(?<! al)\.\s+(?=\*?[a-z\d]*_?[a-z\d]+\b|->)/. X /g if $of_source;
	$text =~ s/!?\[([^\[\]]*)\]\([^)]*\)/index($1, '.') >= 0 || index($1, '`') >= 0 ? 'CODE' : $1/ge;
	$text =~ s/(`+)[^`]+\1/CODE/g;
	$text =~ s/\*\*?|(?<!\w)_|_(?!\w)//g;
	return split /(?<=[.!?])["')]*\s+(?=["'(]*(?:[A-Z0-9]|CODE))/, $text;
}

# In a message, 'what' and 'who' often stand for a noun that it could name.
my @of_messages = (@turns, [qr/(?:^|[;:] )(?:what|who) (?:is|was|were|are|has|helps|it|they)\b(?!.*\?)/i, 'a noun as subject']);

my $bad = 0;
sub judge {
	my ($file, $line, $text, $turns) = @_;
	for my $s (sentences($text)) {
		my $n = grep { /[A-Za-z0-9]/ } split ' ', $s;
		my @why = $n > $most ? ("$n words") : ();
		push @why, map { $s =~ $_->[0] ? $_->[1] : () } @{ $turns // \@turns };
		next unless @why;
		$bad++;
		printf "%s:%d: %s: %s\n", $file, $line, join(', ', @why), $s;
	}
}

# Reads the paragraphs of a page, with the line on which each begins.
sub page {
	my ($file, $in) = @_;
	my ($code, $start, $text) = (0, 0, '');
	my $end = sub { judge($file, $start, $text) if $text ne ''; $text = '' };
	while (<$in>) {
		chomp;
		if (/^\s*```/) { $code = !$code; $end->(); next }
		next if $code;
		my $item = s/^\s*(?:[-*]|\d+\.)\s+//;
		$end->() if $item || /^\s*$/ || /^\s*\|/ || /^#/ || /^<!--/;
		next if /^\s*$/ || /^\s*\|/ || /^#/ || /^<!--/;
		s/^\s+//;
		$start = $. if $text eq '';
		$text .= ($text eq '' ? '' : ' ') . $_;
	}
	$end->();
}

# Reads a manual page: .TP and the line after it begin a paragraph; requests for fonts are removed.
sub manual {
	my ($file, $in) = @_;
	my ($skip, $nofill, $start, $text) = (0, 0, 0, '');
	my $end = sub { judge($file, $start, $text) if $text ne ''; $text = '' };
	while (<$in>) {
		chomp;
		s/\\f\(?[A-Z]|\\&//g;
		s/\\-/-/g;
		if (/^\.nf/) { $nofill = 1; $end->(); next }
		if (/^\.fi/) { $nofill = 0; next }
		next if $nofill;
		if (/^\.(?:TP|SH|SS|PP|RS|RE|br|TH|IP|P|EX|EE)\b/) { $end->(); $skip = /^\.TP/; next }
		next if /^\.\\"/;
		if ($skip) { $skip = 0; next }
		s/^\.[A-Z]+ +(.*)/(my $x = $1) =~ s{"|\s+(?=[.,;:)])}{}g; $x/e;
		$start = $. if $text eq '';
		$text .= ($text eq '' ? '' : ' ') . $_;
	}
	$end->();
}

sub lines {
	my ($file, $in) = @_;
	while (<$in>) {
		s/^\s*--?\S+(?: [A-Z][A-Z|=:]*)?  +//;
		judge($file, $., $_);
	}
}

# Reads the paragraphs of a comment, except tables, drawings and code, whose lines are indented or have gaps.
sub comment {
	my ($file, $line, $text) = @_;
	my ($start, $all) = ($line, '');
	for (split /\n/, $text) {
		s/^\s*\*? ?//;
		s/^SPDX.*//;
		if (/^\s*$/ || /^(?:\s{2}|\t)/ || /\S(?:\t| {2,})\S/) {
			judge($file, $start, $all);
			($start, $all) = ($line + 1, '');
		} else {
			$all .= "$_ ";
		}
		$line++;
	}
	judge($file, $start, $all);
}

# Reads the comments and messages of a source.  Strings that follow each other are one message if they have several
# words.
sub source {
	my ($file, $in) = @_;
	local $of_source = 1;
	my $t = do { local $/; <$in> };
	my ($line, $at, $text) = (1, 0, undef);
	my $end = sub {
		for (split /\n/, $text // '') {
			judge($file, $at, $_, \@of_messages) if /[a-z] \S+ \S/ && !/[{}<>]|^\.|; then/;
		}
		undef $text;
	};
	while ($t =~ /\G(?:(\/\*.*?\*\/)|"((?:[^"\\]|\\.)*)"|('(?:[^'\\]|\\.)+')|(\n)|([ \t]+|PRI\w+)|(\w+|.))/gs) {
		if (defined $1) {
			my $c = $1;
			$end->();
			comment($file, $line, $c =~ s/^\/\*|\*\/$//gr);
			$line += ($c =~ tr/\n//);
		} elsif (defined $2) {
			$at = $line unless defined $text;
			$text .= $2 =~ s/\\n/\n/gr =~ s/\\t/ /gr;
		} elsif (defined $4) {
			$line++;
		} elsif (!defined $5) {
			$end->();
		}
	}
}

for my $file (@ARGV) {
	open my $in, '<', $file or die "$file: $!\n";
	$file =~ /\.(?:[ch]|cu|cc)$/ ? source($file, $in) : $file =~ /\.md$/ ? page($file, $in) : $file =~ /\.\d$/ ? manual($file, $in) : lines($file, $in);
	close $in;
}
exit($bad ? 1 : 0);
