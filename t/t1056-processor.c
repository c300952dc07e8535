/* SPDX-License-Identifier: Apache-2.0
 * The name and the hash of the processor, from the /proc/cpuinfo of several.  If all ARM processors had the same hash,
 * each would be given the implementations that were the fastest on another.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/base/err.h"
#include "engine/device/processor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void put(const char *text)
{
	char *path = hd_format("%s/proc/cpuinfo", root);
	FILE *f = fopen(path, "w");

	if (!f)
		skip_all("no files can be written in /tmp");
	fputs(text, f);
	fclose(f);
	free(path);
}

static void is_named(const char *expected, const char *name)
{
	char is[100];

	hd_processor_name(root, is, sizeof(is));
	ok(!strcmp(is, expected), name);
	if (strcmp(is, expected) != 0)
		note("it is '%s', not '%s'", is, expected);
}

static uint64_t hash_of(const char *text)
{
	put(text);
	return hd_processor_hash(root);
}

#define X86(number, flags) \
	"processor\t: " number "\nmodel name\t: AMD EPYC 9R14 # 96 cores\ncpu MHz\t\t: 2600." number \
	"\nflags\t\t: fpu " flags "\n\n"
#define ARM(number, features, part) \
	"processor\t: " number "\nBogoMIPS\t: 2100.0" number "\nFeatures\t: fp asimd " features \
	"\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: " part \
	"\nCPU revision\t: 1\n\n"

static void names(void)
{
	is_named("unknown processor", "a system without /proc/cpuinfo has an unknown processor");
	put(X86("0", "sse") X86("1", "sse"));
	is_named("AMD EPYC 9R14", "x86-64: the name is the model, up to a comment sign");
	put(ARM("0", "sve", "0xd40") ARM("1", "sve", "0xd40"));
	is_named("ARM Neoverse V1", "ARM: the name is that of the core, found by its numbers");
	put(ARM("0", "sve", "0xd4f") ARM("1", "sve", "0xd4f"));
	is_named("ARM Neoverse V2", "ARM: a different core has a different name");
	put(ARM("0", "", "0xd4f") ARM("1", "", "0xd0c"));
	is_named("ARM Neoverse V2", "ARM: of two kinds of cores the first is named");
	put(ARM("0", "", "0xfff"));
	is_named("ARM part 0xfff of implementer 0x41", "ARM: an unknown core is named by its numbers");
}

static void numbers(void)
{
	uint64_t none = hd_processor_hash("/nowhere"), v1 = hash_of(ARM("0", "sve", "0xd40"));

	ok(v1 != none, "ARM: the hash differs from that of an unknown processor");
	ok(v1 == hash_of(ARM("4", "sve", "0xd40") ARM("5", "sve", "0xd40")), "ARM: the hash is the same on any core");
	ok(v1 != hash_of(ARM("0", "sve", "0xd4f")), "ARM: a different core has a different hash");
	ok(v1 != hash_of(ARM("0", "sve bf16", "0xd40")), "... as has one with other features");
	ok(hash_of(X86("0", "avx2")) == hash_of(X86("1", "avx2") X86("2", "avx2")),
	   "x86-64: the hash is the same on any core");
	ok(hash_of(X86("0", "avx2")) != hash_of(X86("0", "avx2 amx_tile")),
	   "x86-64: other flags give a different hash");
}

int main(void)
{
	char *dir;

	snprintf(root, sizeof(root), "/tmp/heddle-processor.XXXXXX");
	if (!mkdtemp(root))
		skip_all("no directory in /tmp");
	dir = hd_format("%s/proc", root);
	mkdir(dir, 0777);
	names();
	numbers();
	free(dir);
	dir = hd_format("rm -r %s", root);
	if (system(dir))
		note("%s cannot be removed", root);
	free(dir);
	return done();
}
