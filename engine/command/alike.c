/* SPDX-License-Identifier: Apache-2.0
 * Checks that all ranks were started with the same program, INI and data. A host with an older file would train with
 * its own learning rate or on its own text. Nothing else would notice: the plan does not contain the numbers of
 * [train].
 */
#include <config.h>
#include "engine/command/command.h"
#include "engine/base/rng.h"
#include "engine/file/file.h"
#include <stdlib.h>
#include <string.h>

static uint64_t hash_bytes(const char *p, size_t n)
{
	uint64_t h = n, word;

	for (size_t at = 0; at < n; at += sizeof(word)) {
		word = 0;
		memcpy(&word, p + at, n - at < sizeof(word) ? n - at : sizeof(word));
		h = hd_hash64(h ^ word);
	}
	return h;
}

static uint64_t program_hash(void)
{
	size_t n = 0;
	char *bytes = hd_file_slurp("/proc/self/exe", &n);
	uint64_t h = bytes ? hash_bytes(bytes, n) : 0;

	free(bytes);
	return h;
}

/* Finds the first line in which two texts differ, in each of them. */
static void first_difference(char *a, char *b, char **line_a, char **line_b)
{
	do {
		*line_a = strsep(&a, "\n");
		*line_b = strsep(&b, "\n");
	} while (*line_a && *line_b && !strcmp(*line_a, *line_b));
}

/* Fails with the difference. theirs: the text of that rank; ours: the text of rank 0. */
typedef void refusal(int rank, char *theirs, const char *ours, struct hd_err *err);

/* Compares a text on all ranks, and refuses a rank whose text differs from that of rank 0. Collective; frees the
 * text. */
static int compare(char *text, refusal *refuse, struct hd_err *err)
{
	double hash = (double)(hash_bytes(text, strlen(text)) >> 12);
	char **all;

	if (hd_comm_max(hash) != -hd_comm_max(-hash)) {
		all = hd_comm_gather_text(text);
		for (int r = 1; all && !err->code; r++)
			if (strcmp(all[r], all[0]))
				refuse(r, all[r], all[0], err);
		hd_comm_agree(err);
	}
	free(text);
	return err->code;
}

static void refuse_start(int rank, char *text, const char *first, struct hd_err *err)
{
	char *zero = hd_strdup(first), *theirs, *ours, *who = hd_rank_text(rank), *other = hd_rank_text(0);

	first_difference(text, zero, &theirs, &ours);
	if (theirs && ours && !strncmp(ours, "heddle ", 7))
		hd_err_set(err, HD_EINVAL, "%s runs a different build of heddle from %s: %s there, %s here", who, other,
			   theirs + 7, ours + 7);
	else
		hd_err_set(err, HD_EINVAL, "%s has a different INI from %s: '%s' there, '%s' here", who, other,
			   theirs ? theirs : "", ours ? ours : "");
	free(zero);
	free(who);
	free(other);
}

int hd_ranks_alike(struct hd_conf *conf, struct hd_err *err)
{
	char *ini = hd_conf_text(conf);
	char *text = hd_format("heddle %s, %016llx\n%s", PACKAGE_VERSION, (unsigned long long)program_hash(), ini);

	free(ini);
	return compare(text, refuse_start, err);
}

/* Returns the numbers of training and validation tokens, and a hash of some of them. */
static char *data_text(const struct hd_data *d)
{
	return hd_format("%lld and %lld tokens\n%016llx", (long long)hd_data_tokens(d, 0),
			 (long long)hd_data_tokens(d, 1), (unsigned long long)hd_data_fingerprint(d));
}

static void refuse_data(int rank, char *theirs, const char *ours, struct hd_err *err)
{
	char *who = hd_rank_text(rank), *other = hd_rank_text(0);
	size_t a = strcspn(theirs, "\n"), b = strcspn(ours, "\n");

	if (a == b && !strncmp(theirs, ours, a))
		hd_err_set(err, HD_EINVAL,
			   "%s has different data from %s: the same number of tokens, but different ones", who, other);
	else
		hd_err_set(err, HD_EINVAL,
			   "%s has different data from %s: for training and validation %.*s there, %.*s here", who,
			   other, (int)a, theirs, (int)b, ours);
	free(who);
	free(other);
}

int hd_data_alike(const struct hd_data *d, struct hd_err *err)
{
	return compare(data_text(d), refuse_data, err);
}
