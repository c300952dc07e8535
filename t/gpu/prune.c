/* SPDX-License-Identifier: Apache-2.0
 * Removes a library's GPU code for all architectures but one: prune FILE sm_90.
 *
 * NCCL has code for six architectures, and all of it again in the form before linking; one machine uses a tenth of it.
 * The code for others is overwritten with zeros in place, so that every offset stays right and a compressed bundle
 * becomes small.  The driver selects an entry by the architecture in its header, so the zeros are never read on the
 * machine that the bundle is for.
 *
 * .nv_fatbin is a sequence of containers: magic, version (2 bytes), header size (2), size of the rest (8).  A container
 * has entries: kind (2 bytes: 1 is PTX, 2 machine code), 2 bytes, header size (4), payload size (8), 12 bytes,
 * architecture (4).  The section __nv_relfatbin is similar, and is read only by linkers.
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0xba55ed50u

static unsigned char *file;
static size_t size, kept, cleared;

static uint64_t number(size_t at, int bytes)
{
	uint64_t x = 0;

	if (at + (size_t)bytes > size) {
		fprintf(stderr, "prune: an entry of GPU code leaves the file\n");
		exit(1);
	}
	memcpy(&x, file + at, (size_t)bytes);
	return x;
}

static void clear(size_t from, size_t bytes)
{
	number(from + bytes - 1, 1);
	memset(file + from, 0, bytes);
	cleared += bytes;
}

/* Handles one entry and returns its size.  arch 0: the code of all architectures is removed. */
static size_t entry(size_t at, unsigned arch)
{
	size_t head = number(at + 4, 4), payload = number(at + 8, 8);

	if (!head || !payload) {
		fprintf(stderr, "prune: an empty entry of GPU code\n");
		exit(1);
	}
	if (arch && number(at, 2) == 2 && number(at + 28, 4) == arch)
		kept += payload;
	else
		clear(at + head, payload);
	return head + payload;
}

static void section(size_t at, size_t end, unsigned arch)
{
	while (at + 16 <= end) {
		size_t next;

		if (number(at, 4) != MAGIC) { /* between containers: alignment */
			at += 8;
			continue;
		}
		next = at + number(at + 6, 2) + number(at + 8, 8);
		for (at += number(at + 6, 2); at < next;)
			at += entry(at, arch);
	}
}

static void sections(unsigned arch)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)file;
	const Elf64_Shdr *s = (const Elf64_Shdr *)(file + e->e_shoff);
	const char *names;

	number(e->e_shoff + (size_t)e->e_shnum * sizeof(*s) - 1, 1);
	names = (const char *)file + s[e->e_shstrndx].sh_offset;
	for (int i = 0; i < e->e_shnum; i++) {
		const char *name = names + s[i].sh_name;

		if (!strcmp(name, ".nv_fatbin"))
			section(s[i].sh_offset, s[i].sh_offset + s[i].sh_size, arch);
		else if (!strcmp(name, "__nv_relfatbin"))
			section(s[i].sh_offset, s[i].sh_offset + s[i].sh_size, 0);
	}
}

int main(int argc, char **argv)
{
	FILE *f = argc == 3 && !strncmp(argv[2], "sm_", 3) ? fopen(argv[1], "r+b") : NULL;

	if (!f) {
		fprintf(stderr,
			argc == 3 ? "prune: %s cannot be changed, or %s is not an architecture\n"
				  : "usage: prune FILE sm_NN\n",
			argv[1], argv[2]);
		return 2;
	}
	fseek(f, 0, SEEK_END);
	size = (size_t)ftell(f);
	file = malloc(size);
	rewind(f);
	if (!file || fread(file, 1, size, f) != size || size < sizeof(Elf64_Ehdr) || memcmp(file, ELFMAG, SELFMAG)) {
		fprintf(stderr, "prune: %s is not a library\n", argv[1]);
		return 1;
	}
	sections((unsigned)atoi(argv[2] + 3));
	if (!kept) {
		fprintf(stderr, "prune: %s has no machine code for %s\n", argv[1], argv[2]);
		return 1;
	}
	rewind(f);
	if (fwrite(file, 1, size, f) != size || fclose(f)) {
		fprintf(stderr, "prune: %s: a write failed\n", argv[1]);
		return 1;
	}
	printf("%s: %zu bytes of code for %s are left, %zu bytes for others are zero\n", argv[1], kept, argv[2],
	       cleared);
	return 0;
}
