/* SPDX-License-Identifier: Apache-2.0
 * Opens files of tokens as one stream: a list of runs, sorted by position. A run is a piece of a mapped file with ids
 * of one type. So a read is a binary search and a conversion.
 *
 * If [data] format does not give the format of a file, its name decides. It is Megatron's if it is a .idx, or a .bin
 * with a .idx next to it. A name that does not exist is Megatron's too, if it exists with .idx appended. Any other
 * .bin is llm.c's: 256 numbers of 32 bits (magic, version, count), then the ids. Everything else is text.
 */
#include <config.h>
#include "engine/data/tokens.h"
#include "engine/base/parse.h"
#include "engine/file/file.h"
#include "engine/file/same_file.h"
#include "engine/text/corpus/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int hd_ids_width(int type)
{
	static const int width[] = { 1, 1, 2, 2, 4, 4, 8 };

	return width[type];
}

int hd_tokens_map(struct hd_tokens *t, const char *path, struct hd_mapping *out, struct hd_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	struct hd_mapping m = { .path = NULL };
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		rc = hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		rc = hd_err_set(err, HD_EIO, "%s: not a regular file", path);
	} else if (!st.st_size) {
		rc = hd_err_set(err, HD_EINVAL, "%s: the file is empty", path);
	} else {
		m.bytes = (size_t)st.st_size;
		m.at = mmap(NULL, m.bytes, PROT_READ, MAP_SHARED, fd, 0);
		if (m.at == MAP_FAILED)
			rc = hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	if (rc)
		return rc;
	m.path = hd_strdup(path);
	hd_file_mapped(path, m.at, m.bytes);
	t->maps = hd_grow(t->maps, t->nmaps, &t->maps_cap, sizeof(m));
	*out = t->maps[t->nmaps++] = m;
	return 0;
}

void hd_tokens_append(struct hd_tokens *t, const struct hd_mapping *m, size_t at, int64_t count, int type)
{
	struct hd_token_run *last = t->nruns ? &t->runs[t->nruns - 1] : NULL, *r;
	int64_t width = hd_ids_width(type);

	if (!count)
		return;
	if (!last || last->path != m->path || last->type != type ||
	    last->at + (t->n - last->first) * width != m->at + at) {
		t->runs = hd_grow(t->runs, t->nruns, &t->runs_cap, sizeof(*r));
		r = &t->runs[t->nruns++];
		r->at = m->at + at;
		r->path = m->path;
		r->first = t->n;
		r->in_file = (int64_t)(at - m->head) / width;
		r->type = type;
	}
	t->n += count;
}

/* -- formats ----------------------------------------------------------------------------------- */

/* Opens a file of ids without a header, as nanoGPT writes them. */
static int open_plain(struct hd_tokens *t, const char *path, int type, struct hd_err *err)
{
	int width = hd_ids_width(type);
	struct hd_mapping m;

	HD_TRY(hd_tokens_map(t, path, &m, err));
	if (m.bytes % (size_t)width)
		return hd_err_set(err, HD_EINVAL, "%s: %zu bytes are not a multiple of the %d bytes of an id", path,
				  m.bytes, width);
	hd_tokens_append(t, &m, 0, (int64_t)m.bytes / width, type);
	return 0;
}

/* Refuses a file without the header of llm.c, which begins with the number `found`. */
static int refuse_header(const char *path, uint32_t found, int format, struct hd_err *err)
{
	if (format == HD_DATA_LLMC)
		return hd_err_set(
			err, HD_EINVAL,
			"%s: not llm.c's (it begins with %u, not 20240520 or 20240801). For ids of Megatron, set "
			"[data] format = megatron, and for ids without a header, uint16 or uint32",
			path, found);
	return hd_err_set(err, HD_EINVAL,
			  "%s: neither llm.c's (it begins with %u, not 20240520 or 20240801) nor Megatron's (there is "
			  "no .idx next to it). For ids without a header, set [data] format = uint16 or uint32",
			  path, found);
}

static int open_llmc(struct hd_tokens *t, const char *path, int format, struct hd_err *err)
{
	static const struct {
		uint32_t magic, version;
		int type;
		int64_t vocab; /* that of the tokenizer with which llm.c writes such files */
	} known[] = { { 20240520, 1, HD_IDS_U16, 50257 }, { 20240801, 7, HD_IDS_U32, 128256 } };
	uint32_t head[3] = { 0 };
	struct hd_mapping m;
	size_t i, body;

	HD_TRY(hd_tokens_map(t, path, &m, err));
	memcpy(head, m.at, m.bytes < sizeof(head) ? m.bytes : sizeof(head));
	for (i = 0; i < HD_LEN(known) && head[0] != known[i].magic; i++)
		;
	if (i == HD_LEN(known))
		return refuse_header(path, head[0], format, err);
	if (head[1] != known[i].version)
		return hd_err_set(err, HD_EINVAL, "%s: version %u of an llm.c file; only version %u is known", path,
				  head[1], known[i].version);
	body = (size_t)head[2] * (size_t)hd_ids_width(known[i].type);
	if (m.bytes != 1024 + body)
		return hd_err_set(err, HD_EINVAL, "%s: has %zu bytes, but its header says %u tokens, which need %zu",
				  path, m.bytes, head[2], 1024 + body);
	m.head = 1024;
	hd_tokens_append(t, &m, 1024, head[2], known[i].type);
	t->vocab = t->vocab > known[i].vocab ? t->vocab : known[i].vocab;
	return 0;
}

static int ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

static int has_index(const char *path)
{
	int stem = (int)strlen(path) - 4, named = ends(path, ".bin") || ends(path, ".idx");
	char *idx = hd_format("%.*s.idx", named ? stem : stem + 4, path);
	int has = ends(path, ".idx") || (!access(idx, F_OK) && (named || access(path, F_OK)));

	free(idx);
	return has;
}

static int open_indexed(struct hd_tokens *t, const char *path, struct hd_err *err)
{
	int stem = (int)strlen(path) - 4, named = ends(path, ".bin") || ends(path, ".idx"), rc;
	char *bin = hd_format("%.*s.bin", named ? stem : stem + 4, path);
	char *idx = hd_format("%.*s.idx", named ? stem : stem + 4, path);

	rc = hd_megatron_open(t, bin, idx, err);
	free(bin);
	free(idx);
	return rc;
}

static int open_ids(struct hd_tokens *t, const char *path, int format, struct hd_err *err)
{
	if (format == HD_DATA_UINT16 || format == HD_DATA_UINT32)
		return open_plain(t, path, format == HD_DATA_UINT16 ? HD_IDS_U16 : HD_IDS_U32, err);
	if (format == HD_DATA_INDEXED || (format == HD_DATA_AUTO && has_index(path)))
		return open_indexed(t, path, err);
	return open_llmc(t, path, format, err);
}

static int is_text(const char *path, const struct hd_tokens_how *how)
{
	if (how->format != HD_DATA_AUTO)
		return how->format == HD_DATA_TEXT || how->format == HD_DATA_JSONL;
	return !ends(path, ".bin") && !has_index(path);
}

static int ends_as_text(const char *path)
{
	return ends(path, ".txt") || ends(path, ".txt.gz") || ends(path, ".txt.zst");
}

int hd_tokens_format(const char *path, int usual)
{
	int ids = usual == HD_DATA_UINT16 || usual == HD_DATA_UINT32 || usual == HD_DATA_LLMC;

	if (usual == HD_DATA_INDEXED || has_index(path) || hd_format_of(path) == HD_FORMAT_JSONL)
		return HD_DATA_AUTO;
	if (ends(path, ".bin") ? !ids : ids && ends_as_text(path))
		return HD_DATA_AUTO;
	return usual;
}

/* -- which files ------------------------------------------------------------------------------- */
/* Whether file i is an index whose .bin is in the list too: the .bin then stands for both. */
static int is_second(const struct hd_files *f, size_t i)
{
	const char *path = f->all[i].path;
	size_t n = strlen(path);

	for (size_t k = 0; ends(path, ".idx") && k < f->n; k++)
		if (!strncmp(f->all[k].path, path, n - 4) && !strcmp(f->all[k].path + n - 4, ".bin"))
			return 1;
	return 0;
}

static int find_one(const char *name, struct hd_files *out, struct hd_err *err)
{
	struct hd_files in = { 0 };
	struct stat st;
	int there = !stat(name, &st), rc;

	if (there ? !S_ISDIR(st.st_mode) : !strpbrk(name, "*?[")) { /* opening it reports any error */
		hd_files_add(out, name, there ? &st : NULL);
		return HD_OK;
	}
	rc = hd_files_find(&name, 1, &in, err);
	for (size_t i = 0; i < in.n && rc >= 0; i++) {
		if (is_second(&in, i))
			continue;
		out->all = hd_grow(out->all, out->n, &out->cap, sizeof(*out->all));
		out->all[out->n++] = in.all[i];
		in.all[i].path = NULL;
	}
	hd_files_release(&in);
	return rc;
}

static int find(const char *files, struct hd_files *out, struct hd_err *err)
{
	char *copy = hd_strdup(files), *next = copy, *one;
	int rc = 0;

	while (!rc && (one = strsep(&next, ","))) {
		one = hd_parse_trim(one);
		rc = *one ? find_one(one, out, err)
			  : hd_err_set(err, HD_EINVAL, "'%.100s' has an empty file name", files);
	}
	free(copy);
	return rc;
}

/* Opens all files, which must be either all text or all ids. */
static int open_all(struct hd_tokens *t, const struct hd_files *f, const struct hd_tokens_how *how, struct hd_err *err)
{
	int text = is_text(f->all[0].path, how);

	for (size_t i = 1; i < f->n; i++)
		if (is_text(f->all[i].path, how) != text)
			return hd_err_set(err, HD_EINVAL, "%s is text, but %s contains ids of a tokenizer",
					  f->all[text ? 0 : i].path, f->all[text ? i : 0].path);
	if (text)
		return hd_text_open(t, f, how, err);
	for (size_t i = 0; i < f->n; i++)
		HD_TRY(open_ids(t, f->all[i].path, how->format, err));
	return HD_OK;
}

int hd_tokens_are_text(const char *files, const struct hd_tokens_how *how)
{
	struct hd_files found = { 0 };
	struct hd_err ignored = { 0 };
	int text = !find(files, &found, &ignored) && found.n && !access(found.all[0].path, F_OK) &&
		   is_text(found.all[0].path, how);

	hd_files_release(&found);
	return text;
}

int hd_tokens_have_jsonl(const char *files)
{
	struct hd_files found = { 0 };
	struct hd_err ignored = { 0 };
	int some = 0;

	find(files, &found, &ignored);
	for (size_t i = 0; i < found.n && !some; i++)
		some = hd_format_of(found.all[i].path) == HD_FORMAT_JSONL;
	hd_files_release(&found);
	return some;
}

/* Whether path is the file of one name of [data]; a name of Megatron's stands for two files. */
static int is_in(const char *name, const char *path)
{
	static const char *const endings[] = { ".bin", ".idx" };
	int stem = (int)strlen(name), same = hd_file_same(name, path);

	if (!has_index(name))
		return same;
	stem -= ends(name, ".bin") || ends(name, ".idx") ? 4 : 0;
	for (size_t i = 0; i < HD_LEN(endings) && !same; i++) {
		char *one = hd_format("%.*s%s", stem, name, endings[i]);

		same = hd_file_same(one, path);
		free(one);
	}
	return same;
}

int hd_tokens_are_in(const char *files, const char *path)
{
	struct hd_files found = { 0 };
	struct hd_err ignored = { 0 };
	int some = 0;

	find(files, &found, &ignored);
	for (size_t i = 0; i < found.n && !some; i++)
		some = is_in(found.all[i].path, path);
	hd_files_release(&found);
	return some;
}

int hd_tokens_open(const char *files, const struct hd_tokens_how *how, struct hd_tokens **out, struct hd_err *err)
{
	static const struct hd_tokens_how usual;
	struct hd_tokens *t = hd_alloc(sizeof(*t));
	struct hd_files found = { 0 };
	int rc = find(files, &found, err);

	if (!rc)
		rc = open_all(t, &found, how ? how : &usual, err);
	if (!rc && !t->n)
		rc = hd_err_set(err, HD_EINVAL, "%.100s: no tokens", files);
	hd_files_release(&found);
	if (rc)
		hd_tokens_close(t);
	else
		*out = t;
	return rc;
}

void hd_tokens_close(struct hd_tokens *t)
{
	size_t i;

	if (!t)
		return;
	for (i = 0; i < t->nmaps; i++) {
		hd_file_unmapped(t->maps[i].at);
		munmap((void *)t->maps[i].at, t->maps[i].bytes);
		free(t->maps[i].path);
	}
	free(t->maps);
	free(t->runs);
	free(t->notes);
	free(t);
}

/* -- reading ----------------------------------------------------------------------------------- */

static size_t run_of(const struct hd_tokens *t, int64_t position)
{
	size_t lo = 0, hi = t->nruns, mid;

	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (t->runs[mid].first <= position)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* memcpy is needed because the ids in a file may be unaligned. */
static int64_t id_at(const unsigned char *p, int type)
{
	uint16_t half;
	uint32_t word;
	int64_t wide;

	switch (type) {
	case HD_IDS_U8: return *p;
	case HD_IDS_I8: return (int8_t)*p;
	case HD_IDS_U16:
	case HD_IDS_I16: memcpy(&half, p, 2); return type == HD_IDS_U16 ? half : (int16_t)half;
	case HD_IDS_U32:
	case HD_IDS_I32: memcpy(&word, p, 4); return type == HD_IDS_U32 ? (int64_t)word : (int32_t)word;
	default: memcpy(&wide, p, 8); return wide;
	}
}

int hd_tokens_read(const struct hd_tokens *t, int64_t first, int64_t count, int64_t vocab, int32_t *ids,
		   struct hd_err *err)
{
	int64_t limit = vocab ? vocab : 1ll << 31, i, id, at, end;
	size_t r;

	if (first < 0 || count < 0 || first > t->n - count)
		return hd_err_set(err, HD_EBUG, "tokens %lld to %lld of %lld", (long long)first,
				  (long long)(first + count), (long long)t->n);
	for (i = 0, r = count ? run_of(t, first) : 0; i < count; r++) {
		const struct hd_token_run *run = &t->runs[r];
		int width = hd_ids_width(run->type);

		end = r + 1 < t->nruns ? run[1].first : t->n;
		for (; i < count && first + i < end; i++) {
			at = first + i - run->first;
			id = id_at(run->at + at * width, run->type);
			if (id < 0 || id >= limit)
				return hd_err_set(err, HD_EINVAL,
						  "%s: token %lld has id %lld, which is not in a "
						  "vocab of %lld",
						  run->path, (long long)(run->in_file + at), (long long)id,
						  (long long)limit);
			ids[i] = (int32_t)id;
		}
	}
	return 0;
}
