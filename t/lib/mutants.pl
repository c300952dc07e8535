#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# usage: mutants.pl --check SOURCE
#        mutants.pl [--only TEXT] [--first K] [--seconds S] SOURCE N SEED	(from the build folder)
#
# Tries deliberate mistakes, which are listed in SOURCE/t/mutants/*.txt.  Each is made by itself, in a copy of the tree
# in the folder mutants, and the tests likeliest to notice it are run, quick ones first, until one fails.  Mistakes in C
# are all compiled at once: each is a variant of its function, and HD_MUTANT chooses one.  The others are compiled one
# at a time.  Mistakes that survive all their tests are printed: nothing would have noticed them.
#
# A line is FILE <tab> FUNCTION <tab> OLD <tab> NEW <tab> TESTS, and <tab> REASON if no test can notice, because the
# program does the same.  OLD must be found once in the function (* is the file); blanks may differ.  A test is a
# number, or cuda/ and a number for a test of kernels on the simulated device.  amx before the tests: they notice the
# mistake only on a processor with AMX.
#
# --check: checks that each OLD is still found, that the tests exist, and that every folder has mutants; builds nothing.
# SEED draws N mutants, or all if N is 0, from number K on.  mutants.log gets a line for each, so an interrupted run
# resumes: a mutant is not tried again until its file or its tests change.  Remove the log to start over.  --only may be
# given several times. A test that has never passed is taken to hang after S seconds, 300 by default; a busy machine
# needs more.
use strict;
use warnings;
use Cwd 'abs_path';
use Digest::MD5 'md5_hex';
use File::Basename;
use File::Find;
use File::Path 'make_path';
use File::Temp;
use IO::Handle;
use IO::Select;
use POSIX ':sys_wait_h';
use Time::HiRes qw(sleep time);

my ($check, $first, $patience, @only) = (0, 0, 300);
while (@ARGV && $ARGV[0] =~ /^--/) {
	my $option = shift;
	if ($option eq '--check') { $check = 1 }
	elsif ($option eq '--only') { push @only, shift // '' }
	elsif ($option eq '--first') { $first = shift // 0 }
	elsif ($option eq '--seconds') { $patience = shift // 300 }
	else { die "mutants.pl: no option $option\n" }
}
my ($source, $n, $seed) = @ARGV;
defined $source && ($check || defined $seed) or die "usage: mutants.pl [--check | --only TEXT | --first K | --seconds S] SOURCE [N SEED]\n";
for (grep { !$check } $n, $seed, $first) {
	/^\d+$/ or die "mutants.pl: '$_' is not a number\n";
}
$source = abs_path $source;

# -- the list ----------------------------------------------------------------------------------
my @all;
for my $list (sort glob "$source/t/mutants/*.txt") {
	open my $in, '<', $list or die "$list: $!\n";
	while (<$in>) {
		chomp;
		next if /^#/ || !/\S/;
		my ($file, $function, $old, $new, $tests, $reason) = split /\t/;
		defined $tests or die "$list:$.: five fields, with tabs between\n";
		push @all, { at => basename($list) . ":$.", file => $file, function => $function, old => $old, new => $new,
			tests => [ grep { $_ ne 'amx' } split ' ', $tests ], amx => scalar($tests =~ /\bamx\b/), reason => $reason };
	}
}

$all[$_]->{number} = $_ + 1 for 0 .. $#all;

sub slurp {
	my ($path) = @_;
	open my $in, '<', $path or return undef;
	local $/;
	return scalar <$in>;
}

# Returns where the function's text begins and ends; a definition begins in the first column and ends with a } there.
sub extent {
	my ($text, $function) = @_;
	return (0, length $text) if $function eq '*';
	while ($$text =~ /^(?=[A-Za-z_#].*\b\Q$function\E\()/mg) {
		my $from = pos $$text;
		my $brace = index $$text, "\n}", $from;
		my $semicolon = index $$text, ';', $from;
		my $open = index $$text, "\n{", $from;
		return ($from, $brace + 2) if $open >= 0 && $brace > 0 && ($semicolon < 0 || $open < $semicolon);
	}
	return;
}

# Returns the text with the mistake, undef, the function's text, its beginning and its end; or undef and the reason of a
# failure.
sub mutated {
	my ($m) = @_;
	my $text = slurp("$source/$m->{file}");
	return (undef, "there is no file $m->{file}") unless defined $text;
	my ($from, $to) = $m->{function} eq '*' ? (0, length $text) : extent(\$text, $m->{function});
	return (undef, "$m->{file} has no function $m->{function}") unless defined $from;
	my $part = substr $text, $from, $to - $from;
	my $old = join '\s+', map { quotemeta } split ' ', $m->{old};
	my $found = () = $part =~ /$old/g;
	return (undef, "$m->{function}: '$m->{old}' is there $found times") if $found != 1;
	$part =~ s/$old/$m->{new}/;
	return (undef, "$m->{old}: nothing changes") if $part eq substr $text, $from, $to - $from;
	substr($text, $from, $to - $from) = $part;
	return ($text, undef, $part, $from, $to);
}

# -- all mistakes in one text --------------------------------------------------------------------
my $chosen_by = <<'END';
extern char *getenv(const char *);
extern int atoi(const char *);
static int hd_mutant(void)
{
	static int number = -1;

	if (number < 0)
		number = getenv("HD_MUTANT") ? atoi(getenv("HD_MUTANT")) : 0;
	return number;
}
END

# Returns the names of a definition's parameters, or undef.
sub parameters {
	my ($signature, $function) = @_;
	my ($list) = $signature =~ /\b\Q$function\E\s*\((.*)\)\s*$/s or return undef;
	my @names;
	1 while $list =~ s/\[[^][]*\]//g;
	return undef if $list =~ /[()]|\.\.\.|^[A-Z_]+$/;
	for (split /,/, $list) {
		next if /^\s*void\s*$/;
		/(\w+)\s*$/ or return undef;
		push @names, $1;
	}
	return \@names;
}

# Returns the original function, one variant per mistake, and a function that chooses among them; undef if that is not
# possible.
sub variants {
	my ($function, $text, @mutants) = @_;
	my ($signature) = $text =~ /^(.*?)\n\{/s or return undef;
	my $names = parameters($signature, $function) // return undef;
	my $out = "$signature;\n";
	for my $m ({ number => 0, text => $text }, @mutants) {
		my $one = $m->{text};
		return undef unless $one =~ s/\b\Q$function\E\s*\(/${function}__$m->{number}(/;
		$out .= ($one =~ /^[^(]*\bstatic\b/ ? '' : 'static ') . "$one\n";
	}
	my $arguments = '(' . join(', ', @$names) . ')';
	$out .= "$signature\n{\n\tswitch (hd_mutant()) {\n";
	$out .= "\tcase $_->{number}: return ${function}__$_->{number}$arguments;\n" for @mutants;
	return $out . "\t}\n\treturn ${function}__0$arguments;\n}";
}

# Returns a file's text with all mistakes that can be compiled together, and sets {together} of those.
sub together {
	my ($file, @mutants) = @_;
	my $text = slurp("$source/$file");
	my (%by, %from, $found);
	return $text unless $file =~ /\.c$/;
	for my $m (@mutants) {
		my (undef, undef, $part, $from, $to) = mutated($m);
		next if $m->{function} eq '*' || substr($text, $from, 1) eq '#';
		push @{ $by{ $m->{function} } }, { number => $m->{number}, text => $part, of => $m };
		$from{ $m->{function} } = [ $from, $to ];
	}
	for my $f (sort { $from{$b}[0] <=> $from{$a}[0] } keys %by) {
		my ($from, $to) = @{ $from{$f} };
		my $all = variants($f, substr($text, $from, $to - $from), @{ $by{$f} }) // next;
		substr($text, $from, $to - $from) = $all;
		$_->{of}{together} = $found = 1 for @{ $by{$f} };
	}
	return $found ? $chosen_by . $text : $text;
}

my %test = map { basename($_) =~ /^(t\d+)/ ? ($1 => 1) : () } glob "$source/t/t[0-9]*";
my %on_cuda = map { m{^CUDA_TESTS \+= t/(cuda/t\d+)(\S*)} ? ($1 => "t/$1$2") : () } split /\n/, slurp("$source/sources.am") // '';
$test{$_} = 1 for keys %on_cuda;
my @wrong;
for my $m (@all) {
	my (undef, $why) = mutated($m);
	push @wrong, "$m->{at}: $why" if $why;
	push @wrong, map { "$m->{at}: there is no test $_" } grep { !$test{$_} } @{ $m->{tests} };
	push @wrong, "$m->{at}: tests, or a reason why none can notice" unless @{ $m->{tests} } || $m->{reason};
}
my %folder = map { dirname($_->{file}) => 1 } @all;
if ($check) {
	my %has;
	for (split /\n/, `cd '$source' && find engine plugins kernels -name '*.c' -o -name '*.cu' -o -name '*.cc'`) {
		$has{ dirname($_) } = 1 if slurp("$source/$_") =~ /^\{/m;    # tables alone have no mistakes
	}
	push @wrong, map { "$_ has no mutant" } grep { !$folder{$_} } sort keys %has;
	print "$_\n" for @wrong;
	printf "%d mutants of %d folders\n", scalar @all, scalar keys %folder;
	exit(@wrong ? 1 : 0);
}
die join("\n", @wrong) . "\n" if @wrong;

# -- which -------------------------------------------------------------------------------------
sub is_wanted {
	my ($text) = @_;
	return !@only || grep { index($text, $_) >= 0 } @only;
}
my @chosen = grep { !$_->{reason} && is_wanted("$_->{at} $_->{file} $_->{function}") } @all;
my $state = $seed * 2654435761 % 4294967296;
sub draw { $state = ($state * 1664525 + 1013904223) % 4294967296; return int($state / 65536) % $_[0] }
if (!@only && $n) {
	for (my $i = $#chosen; $i > 0; $i--) {
		my $k = draw($i + 1);
		@chosen[ $i, $k ] = @chosen[ $k, $i ];
	}
	splice @chosen, 0, $first;
	splice @chosen, $n if @chosen > $n;
} else {
	splice @chosen, 0, $first;
}

# -- the copy ----------------------------------------------------------------------------------
# Its build folder is inside it, as a developer's is, so a compiler's cache has most objects.
my $here = abs_path '.';
my $copy = "$here/mutants/source";
my $build = "$copy/build";
my $make = $ENV{MAKE} || 'make';
$ENV{CCACHE_NOHASHDIR} = 1;

# A running command has its own process group, and ends with this program.  So does a mistake in the copy.
my ($child, $mistaken);
my $self = $$;
$SIG{$_} = sub { kill 'TERM', -$child if $child; exit 1 } for qw(INT TERM HUP);
END {
	my $status = $?;
	restore() if defined $self && $$ == $self;
	$? = $status;
}

sub shell {
	my ($command, $log) = @_;
	$child = fork // die "fork: $!\n";
	if (!$child) {
		setpgrp;
		exec 'sh', '-c', "{ $command; } >'$here/mutants/$log' 2>&1";
	}
	waitpid $child, 0;
	undef $child;
	return $?;
}

sub write_file {
	my ($path, $text) = @_;
	open my $out, '>', $path or die "$path: $!\n";
	print $out $text;
	close $out or die "$path: $!\n";
}

my (%of_file, %base);    # the mutants of a file; its text without mistakes, or with all that can be together

sub mistake {
	my ($m) = @_;
	$mistaken = $m->{file};
	write_file("$copy/$mistaken", $m->{text});
}

sub restore {
	write_file("$copy/$mistaken", $base{$mistaken}) if defined $mistaken;
	undef $mistaken;
}

make_path($copy, $build);
my $tree = Digest::MD5->new;
push @{ $of_file{ $_->{file} } }, $_ for grep { !$_->{reason} } @all;
$base{$_} = together($_, @{ $of_file{$_} }) for keys %of_file;
my @files = split /\n/, `cd '$source' && { bin/sources --files; ls heddle.pc.in LICENSE README.md configure aclocal.m4 Makefile.in config.h.in build-aux/* m4/*; find conf doc man; } 2>/dev/null | sort -u`;
my %wanted = map { $_ => 1 } @files;
find(
	{
		no_chdir => 1,
		preprocess => sub { $File::Find::dir eq $copy ? grep { !/^(?:build|autom4te\.cache)$/ } @_ : @_ },
		wanted => sub { unlink $_ if -f && !$wanted{ substr $_, 1 + length $copy } }    # moved or removed
	},
	$copy
);
for my $f (grep { -f "$source/$_" } @files) {
	my $text = slurp("$source/$f");
	my $there = slurp("$copy/$f");
	$tree->add("$f\n", $text);
	$text = $base{$f} // $text;
	next if defined $there && $there eq $text;
	make_path(dirname "$copy/$f");
	write_file("$copy/$f", $text);
	chmod((stat "$source/$f")[2] & 0777, "$copy/$f");
	utime((stat "$source/$f")[8, 9], "$copy/$f") unless defined $there;
}
$tree = $tree->hexdigest;
if (!-f "$build/config.status") {
	my $options = `'$here/config.status' --config 2>/dev/null`;
	chomp $options;
	shell("cd '$build' && ../configure -q $options", 'configure.log') and die "mutants.pl: configure fails (mutants/configure.log)\n";
}

# Tests by number; t1240 is several.
my (%program, %script, %text);
for (map { basename $_ } glob "$source/t/t[0-9]*") {
	push @{ $program{$1} }, "t/$2.t" if /^((?=(t\d+-.*)\.c$)t\d+)/;
	push @{ $script{$1} }, "t/$_" if /^(t\d+)-.*\.sh$/;
	$text{$1} .= slurp("$source/t/$_") if /^(t\d+)/;
}
for (keys %on_cuda) {
	$program{$_} = [ $on_cuda{$_} ];
	$text{$_} = $text{ basename $_ };    # the same file, compiled for the device
}

sub make {
	my (@tests) = @_;
	my @programs = map { @{ $program{$_} // [] } } @tests;
	push @programs, 'heddle-cuda-sim.so', 'sim-wrong' if grep { m{^(?:t63|cuda/)} } @tests;
	return shell("cd '$build' && $make -k -s test-parts && $make -s @programs", 'build.log');
}

my %built;    # tests that are built with the base

# Builds tests; mistakes of a file that cannot be compiled together are later compiled alone.
sub build_base {
	my (@tests) = grep { !$built{$_} } @_;
	while (@tests && make(@tests)) {
		my %broken = map { $_ => 1 } slurp("$here/mutants/build.log") =~ m{^(?:\.\./)?((?:engine|plugins|kernels)/\S+\.c):\d+:\d+: error}mg;
		my @broken = grep { $base{$_} && $base{$_} ne slurp("$source/$_") } keys %broken;
		die "mutants.pl: the unchanged tree does not build (mutants/build.log)\n" unless @broken;
		for my $f (@broken) {
			write_file("$copy/$f", $base{$f} = slurp("$source/$f"));
			delete $_->{together} for @{ $of_file{$f} };
		}
	}
	$built{$_} = 1 for @tests;
}

# Runs a test as in the tier check, until its first failure.  Returns '' if it passes, else what it does instead.
my $number = 0;
sub run_one {
	my ($name, $seconds) = @_;
	my $own = File::Temp->newdir;
	my ($passed, $how, $end) = (0, '', time + $seconds);
	$child = open(my $out, '-|') // die "fork: $!\n";
	if (!$child) {
		setpgrp;
		chdir $build or die "$build: $!\n";
		@ENV{qw(HD_BUILD HD_TEST_TIER HD_MUTANT TMPDIR XDG_CACHE_HOME)} = ($build, 'check', $number, "$own", "$own");
		open STDERR, '>', "$here/mutants/test.log";
		exec $name or die "$name: $!\n";
	}
	my $ready = IO::Select->new($out);
	my $rest = '';
	while (!$how) {
		$how = 'hangs' if time > $end;
		next unless $ready->can_read(1);
		sysread $out, $rest, 65536, length $rest or last;
		while ($rest =~ s/^(.*)\n//) {
			my $line = $1;
			$passed++ if $line =~ /^ok/ && $line !~ /# SKIP/;
			$how = 'fails' if $line =~ /^not ok/;
		}
	}
	# On TERM a shell test ends its children and removes its folder.
	if ($how) {
		kill 'TERM', -$child;
		$end = time + 5;
		sleep 0.1 while time < $end && waitpid($child, WNOHANG) == 0;
		kill 'KILL', -$child;
	}
	close $out or $how ||= 'fails';
	undef $child;
	return $how || ($passed ? '' : 'checks nothing');
}
sub run {
	my ($test, $seconds) = @_;
	for ((map { "./$_" } @{ $program{$test} // [] }), map { "../$_" } @{ $script{$test} // [] }) {
		my $how = run_one($_, $seconds);
		return $how if $how;
	}
	return '';
}

# -- what is known -----------------------------------------------------------------------------
my $commit = `git -C '$source' rev-parse --short HEAD 2>/dev/null` || 'release';
chomp $commit;
my (%noticed, %passed);    # by the key of mutant and test
my %seconds;               # by test, where it passes
my %right;                 # by test: whether it passes in this tree without a mistake
if (open my $in, '<', "$here/mutants.log") {
	while (<$in>) {
		$noticed{$1} = 1 if /^(\w+) \S+ noticed by/;
		next unless /^(\w+) \S+ (\S+) (passes|fails) (without|with): (\S+) s$/;
		$seconds{$2} = $5 if $3 eq 'passes';
		$passed{$1} = 1 if $4 eq 'with';
		$right{$2} = $3 eq 'passes' if $4 eq 'without' && $1 eq $tree;
	}
}
open my $log, '>>', "$here/mutants.log" or die "mutants.log: $!\n";
$log->autoflush(1);

sub key {
	my ($m, $test) = @_;
	return md5_hex(join "\0", $m->{text}, $test, $text{$test} // '');
}

# Tests not known to be quick come last, scripts after programs.
sub cost {
	my ($test) = @_;
	return $seconds{$test} // ($script{$test} ? 1000 : 100);
}

# Runs a test and logs its time.  Returns '' if it passes, else what it does instead.
sub try {
	my ($test, $key, $with) = @_;
	my $from = time;
	my $how = run($test, defined $seconds{$test} ? 30 + 10 * $seconds{$test} : $patience);
	my $took = time - $from;
	$seconds{$test} = $took unless $how;
	printf $log "%s %s %s %s %s: %.1f s\n", $key, $commit, $test, $how ? 'fails' : 'passes', $with, $took unless $how && $with eq 'with';
	return $how;
}

sub is_right {
	my ($test) = @_;
	return $right{$test} if defined $right{$test};
	build_base($test);
	my $how = try($test, $tree, 'without');
	print "# $test without a mutant: $how; it is not used\n" if $how;
	return $right{$test} = !$how;
}

sub report {
	my ($m, $how) = @_;
	$m->{how} = $how;
	printf "%s: %s\n", $how, $m->{line};
}

# Runs a test of a mistake that is in the copy.  Returns 1 if the test notices it.
sub notices {
	my ($m, $test) = @_;
	my $key = key($m, $test);
	if (!$passed{$key} && (my $how = try($test, $key, 'with'))) {
		$number = 0;
		restore();
		return 0 unless is_right($test);
		report($m, "noticed by $test, which $how");
		print $log "$key $commit $m->{how}: $m->{line}\n";
		return 1;
	}
	return 0;
}

$| = 1;
for my $m (@chosen) {
	($m->{text}) = mutated($m);
	$m->{line} = sprintf "%s: %s: '%s' -> '%s'", $m->{at}, "$m->{file} $m->{function}", $m->{old}, $m->{new};
	($m->{by}) = grep { $noticed{ key($m, $_) } } @{ $m->{tests} };
	$m->{how} = "noticed by $m->{by}" if $m->{by};
	$m->{left} = [ grep { !$passed{ key($m, $_) } } @{ $m->{tests} } ];
	$m->{how} //= 'not tried, this processor has no AMX' if $m->{amx} && (slurp('/proc/cpuinfo') // '') !~ /\bamx_/;
}

# Mistakes compiled together: always runs the quickest of all remaining tests, so that an interrupted run has done most.
while (my @open = grep { $_->{together} && !$_->{how} && @{ $_->{left} } } @chosen) {
	my ($least, $m);
	for my $o (@open) {
		@{ $o->{left} } = sort { cost($a) <=> cost($b) } @{ $o->{left} };
		($least, $m) = (cost($o->{left}[0]), $o) if !defined $least || cost($o->{left}[0]) < $least;
	}
	my $test = shift @{ $m->{left} };
	next if defined $right{$test} && !$right{$test};
	build_base($test);
	next unless $m->{together};
	$number = $m->{number};
	my $noticed = notices($m, $test);
	$number = 0;
	report($m, 'survived') unless $noticed || @{ $m->{left} };
}

# Other mistakes are tried one at a time, each with its own build.  The base must build first, even if an earlier run
# did the rest.
my @alone = grep { !$_->{how} && !$_->{together} && @{ $_->{left} } } @chosen;
build_base($alone[0]{left}[0]) if @alone && grep { $_->{together} } map { @$_ } values %of_file;
for my $m (grep { !$_->{how} && !$_->{together} && @{ $_->{left} } } @chosen) { # build_base may have found more
	mistake($m);
	%built = ();
	my @tests = sort { cost($a) <=> cost($b) } grep { $right{$_} // 1 } @{ $m->{tests} };
	report($m, 'does not build') if make(@tests);
	for (@tests) {
		last if $m->{how};
		notices($m, $_);
		next unless %built;
		mistake($m);    # is_right() has built without it
		%built = ();
		make(@tests) unless $m->{how};
	}
	restore();
	%built = ();
}

my @survivors = grep { !$_->{how} || $_->{how} !~ /^noticed/ } @chosen;
printf "%d of %d mutants were noticed\n", @chosen - @survivors, scalar @chosen;
printf "%s: %s\n", $_->{how} // 'survived', $_->{line} for @survivors;
exit(@survivors || !@chosen ? 1 : 0);
