/* SPDX-License-Identifier: Apache-2.0
 * The key of a product's shape, and the implementation that was picked for it, as text. The key contains all that the
 * timing depends on. A shape can be rebuilt from its key, so that rank 0 can time shapes that only other ranks need.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "kernels/cpu/tiles/tiles.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hd_mm_pick *picks;

/* The version of the timing and of our own rivals, which are timed too. Their speed depends on the compiler. */
#if defined(__clang__)
#define OWN "8-clang"
#else
#define OWN "7"
#endif

static char *put_list(char *at, const char *end, const char *name, const int64_t *v, int n)
{
	at += snprintf(at, (size_t)(end - at), ":%s=", name);
	for (int i = 0; i < n; i++)
		at += snprintf(at, (size_t)(end - at), i ? ",%lld" : "%lld", (long long)v[i]);
	return at;
}

/* Writes the key of a shape, for example
 *    "product:dims=3:bits=32,32,32,0:n=256,768,768:a=...:b=...:c=...:bias=...:sum=0:threads=2:isa=63:own=7".
 * own: OWN. */
void hd_mm_key_of(char *key, const struct hd_mm_shape *s, int sum)
{
	static const char *const names[] = { "a", "b", "c", "bias" };
	char *at = key, *end = key + HD_MM_KEY;

	at += snprintf(at, HD_MM_KEY, "product:dims=%d:bits=%u,%u,%u,%u", s->ndim, HD_BITS(s->dtype[0]),
		       HD_BITS(s->dtype[1]), HD_BITS(s->dtype[2]), HD_BITS(s->dtype[3]));
	at = put_list(at, end, "n", s->n, s->ndim);
	for (int o = 0; o < (s->dtype[HD_MM_BIAS] ? 4 : 3); o++)
		at = put_list(at, end, names[o], s->stride[o], s->ndim);
	snprintf(at, (size_t)(end - at), ":sum=%d:threads=%d:isa=%d:own=" OWN, sum, omp_get_max_threads(),
		 (int)dnnl_get_effective_cpu_isa());
}

int hd_mm_key_shape(struct hd_mm_shape *s, int *sum, const char *key)
{
	memset(s, 0, sizeof(*s));
	if (strncmp(key, "product:", 8))
		return 0;
	s->ndim = (int)hd_next_number(&key);
	if (s->ndim < 3 || s->ndim > HD_MAX_DIMS + 3)
		return 0;
	for (int o = 0; o < HD_MM_OPERANDS; o++) {
		int64_t bits = hd_next_number(&key);

		s->dtype[o] = bits == 32 ? HD_DTYPE_F32 : bits == 16 ? HD_DTYPE_BF16 : 0;
	}
	for (int d = 0; d < s->ndim; d++)
		s->n[d] = hd_next_number(&key);
	for (int o = 0; o < (s->dtype[HD_MM_BIAS] ? 4 : 3); o++)
		for (int d = 0; d < s->ndim; d++)
			s->stride[o][d] = hd_next_number(&key);
	*sum = (int)hd_next_number(&key);
	/* A shape for a different number of threads cannot be timed here. */
	return hd_next_number(&key) == omp_get_max_threads();
}

char *hd_mm_key_append(char *text, const char *key, const char *value)
{
	char *longer = hd_format(value ? "%s%s %s\n" : "%s%s\n", text, key, value ? value : "");

	free(text);
	return longer;
}

struct hd_mm_pick *hd_mm_pick_find(const char *key, size_t len)
{
	for (struct hd_mm_pick *p = picks; p; p = p->next)
		if (strlen(p->key) == len && !memcmp(p->key, key, len))
			return p;
	return NULL;
}

void hd_mm_pick_add(const char *key, size_t nkey, const char *value, size_t nvalue)
{
	struct hd_mm_pick *p = hd_mm_pick_find(key, nkey);

	if (!p) {
		p = hd_alloc(sizeof(*p));
		p->key = hd_format("%.*s", (int)nkey, key);
		p->next = picks;
		picks = p;
	}
	free(p->value);
	p->value = hd_format("%.*s", (int)nvalue, value);
}

/* over 0: known picks stay, and of lines with the same key the first counts. Lines that pick plain loops are skipped:
 * earlier versions picked them where they overlooked better ones. */
void hd_mm_picks_read(const char *text, int over)
{
	static const char loops[] = "/" HD_MM_PLAIN_LOOPS;

	while (text && *text) {
		size_t line = strcspn(text, "\n"), key = strcspn(text, " \n");

		if (key < line && !strncmp(text, "product:", 8) && (over || !hd_mm_pick_find(text, key)) &&
		    !memmem(text + key, line - key, loops, strlen(loops)))
			hd_mm_pick_add(text, key, text + key + 1, line - key - 1);
		text += line + (text[line] == '\n');
	}
}
