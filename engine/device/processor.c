/* SPDX-License-Identifier: Apache-2.0
 * Reads the processor's name and features from the first entry of /proc/cpuinfo, which ends at an empty line.
 *
 * On x86-64 an entry names the model. On 64-bit ARM it contains a number for the maker of the core
 * and one for the core.
 */
#include <config.h>
#include "engine/device/processor.h"
#include "engine/base/err.h"
#include "engine/base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	long maker, part;
	const char *name;
} cores[] = {
	{ 0x41, 0xd08, "ARM Cortex-A72" },   { 0x41, 0xd0b, "ARM Cortex-A76" },   { 0x41, 0xd0c, "ARM Neoverse N1" },
	{ 0x41, 0xd40, "ARM Neoverse V1" },  { 0x41, 0xd49, "ARM Neoverse N2" },  { 0x41, 0xd4f, "ARM Neoverse V2" },
	{ 0x41, 0xd84, "ARM Neoverse V3" },  { 0x41, 0xd8e, "ARM Neoverse N3" },  { 0x46, 0x001, "Fujitsu A64FX" },
	{ 0x48, 0xd01, "HiSilicon TSV110" }, { 0xc0, 0xac3, "Ampere AmpereOne" },
};

static FILE *open_cpuinfo(const char *root)
{
	char *path = hd_format("%s/proc/cpuinfo", root);
	FILE *f = fopen(path, "re");

	free(path);
	return f;
}

/* Returns the value in a line "KEY<blanks>: value", or NULL if the line has a different key. */
static const char *value_of(const char *line, const char *key)
{
	const char *at = line + strlen(key);

	if (strncmp(line, key, strlen(key)) != 0)
		return NULL;
	at += strspn(at, " \t");
	return *at == ':' ? at + 1 + strspn(at + 1, " \t") : NULL;
}

/* Copies a value, but only up to the end of the line or a character that would begin a comment in an INI file. */
static void put_value(char *to, size_t room, const char *value)
{
	snprintf(to, room, "%s", value);
	to[strcspn(to, "\n;#")] = 0;
	while (*to && to[strlen(to) - 1] == ' ')
		to[strlen(to) - 1] = 0;
}

static void put_numbers(char *to, size_t room, long maker, long part)
{
	for (size_t i = 0; i < HD_LEN(cores); i++)
		if (cores[i].maker == maker && cores[i].part == part) {
			snprintf(to, room, "%s", cores[i].name);
			return;
		}
	snprintf(to, room, "ARM part 0x%lx of implementer 0x%lx", part, maker);
}

void hd_processor_name(const char *root, char *to, size_t room)
{
	FILE *f = open_cpuinfo(root);
	long maker = -1, part = -1;
	char *line = NULL;
	size_t size = 0;

	snprintf(to, room, "unknown processor");
	while (f && getline(&line, &size, f) > 1) {
		const char *model = value_of(line, "model name"), *by = value_of(line, "CPU implementer"),
			   *core = value_of(line, "CPU part");

		if (model)
			put_value(to, room, model);
		maker = by ? strtol(by, NULL, 0) : maker;
		part = core ? strtol(core, NULL, 0) : part;
	}
	if (maker >= 0 && part >= 0)
		put_numbers(to, room, maker, part);
	free(line);
	if (f)
		fclose(f);
}

uint64_t hd_processor_hash(const char *root)
{
	static const char *const keys[] = { "model name",  "flags",    "Features",    "CPU implementer",
					    "CPU variant", "CPU part", "CPU revision" };
	FILE *f = open_cpuinfo(root);
	uint64_t h = HD_HASH_START;
	char *line = NULL;
	size_t size = 0;

	while (f && getline(&line, &size, f) > 1)
		for (size_t i = 0; i < HD_LEN(keys); i++)
			if (value_of(line, keys[i]))
				h = hd_hash_add_text(h, line);
	free(line);
	if (f)
		fclose(f);
	return h;
}
