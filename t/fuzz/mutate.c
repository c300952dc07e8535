/* SPDX-License-Identifier: Apache-2.0
 * A small fuzzer, for where there is none: inputs of the corpus are changed at random; one that runs code which none ran before
 * joins the corpus of this run.  What was run is known where the engine is compiled with
 * -fsanitize-coverage=trace-pc,trace-cmp (gcc calls the functions below); else all changes are of the kept files.
 *
 * Inputs are run in a child.  The one at work lies in memory that both share, so it is there when the child has died.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONGEST = 1 << 18, EDGES = 1 << 16, COMPARED = 64, HANG = 20 /* seconds of one input */ };

struct bytes {
	uint8_t *at;
	size_t n;
};
struct corpus {
	struct bytes *all;
	size_t n, cap, cap_name;
	char **name; /* of those that are files */
};
static struct shared {
	size_t n;
	int64_t runs;
	uint8_t at[LONGEST];
} * now;
static uint64_t state;
static char *kept; /* where inputs that run new code are written, or NULL */

/* -- what is run ------------------------------------------------------------------------------- */
static uint8_t ever[EDGES]; /* by a hash of the address: an input has run it */
static int more;            /* the input at work runs what none had run */
static int searching;
static uint64_t compared[COMPARED];
static size_t ncompared;

#define BARE __attribute__((no_sanitize_coverage, no_sanitize_address, no_sanitize_undefined))
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b);
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b);
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b);
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b);
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b);
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b);
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b);
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b);
void __sanitizer_cov_trace_cmpf(float a, float b);
void __sanitizer_cov_trace_cmpd(double a, double b);
void __sanitizer_cov_trace_switch(uint64_t v, void *cases);

BARE void __sanitizer_cov_trace_pc(void)
{
	uint64_t at = (uint64_t)(uintptr_t)__builtin_return_address(0);

	at = (at * 0x9e3779b97f4a7c15) >> 48;
	if (!ever[at])
		ever[at] = 1, more = 1;
}

BARE static void seen(uint64_t a, uint64_t b)
{
	if (a == b)
		return;
	compared[ncompared++ % COMPARED] = a;
	compared[ncompared++ % COMPARED] = b;
}

BARE void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b)
{
	(void)a, (void)b;
}
BARE void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b)
{
	seen(a, b);
}
BARE void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b)
{
	seen(a, b);
}
BARE void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b)
{
	seen(a, b);
}
BARE void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b)
{
	(void)a, (void)b;
}
BARE void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b)
{
	seen(a, b);
}
BARE void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b)
{
	seen(a, b);
}
BARE void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b)
{
	seen(a, b);
}
BARE void __sanitizer_cov_trace_cmpf(float a, float b)
{
	(void)a, (void)b;
}
BARE void __sanitizer_cov_trace_cmpd(double a, double b)
{
	(void)a, (void)b;
}
BARE void __sanitizer_cov_trace_switch(uint64_t v, void *cases)
{
	(void)v, (void)cases;
}

/* -- the corpus -------------------------------------------------------------------------------- */
static void add(struct corpus *c, const uint8_t *at, size_t n, const char *name)
{
	c->all = hd_grow(c->all, c->n, &c->cap, sizeof(*c->all));
	c->name = hd_grow(c->name, c->n, &c->cap_name, sizeof(*c->name));
	c->all[c->n].at = hd_alloc(n);
	memcpy(c->all[c->n].at, at, n);
	c->name[c->n] = hd_strdup(name);
	c->all[c->n++].n = n;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_file(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void read_corpus(struct corpus *c, const char *dir)
{
	static uint8_t bytes[LONGEST];
	struct dirent **list = NULL;
	int n = scandir(dir, &list, is_file, by_name);

	for (int i = 0; i < n; i++) {
		char *path = hd_format("%s/%s", dir, list[i]->d_name);
		FILE *f = fopen(path, "rbe");

		if (f) {
			add(c, bytes, fread(bytes, 1, sizeof(bytes), f), list[i]->d_name);
			fclose(f);
		}
		free(path);
		free(list[i]);
	}
	free(list);
}

static void release(struct corpus *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->all[i].at);
		free(c->name[i]);
	}
	free(c->all);
	free(c->name);
}

/* -- changes ----------------------------------------------------------------------------------- */
static uint64_t draw(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return n ? state % n : 0;
}

/* Puts n bytes at `at` in the place of `over` that are there. */
static void put(size_t at, size_t over, const void *bytes, size_t n)
{
	over = over < now->n - at ? over : now->n - at;
	if (now->n - over + n > LONGEST)
		return;
	memmove(now->at + at + n, now->at + at + over, now->n - at - over);
	memcpy(now->at + at, bytes, n);
	now->n += n - over;
}

static void put_word(const char *words, size_t at)
{
	char text[100];
	size_t n = 1;

	for (const char *w = words; *w; w++)
		n += *w == ' ';
	for (n = draw(n); n; n--)
		words += strcspn(words, " ") + 1;
	n = strcspn(words, " ");
	if (n < sizeof(text)) {
		memcpy(text, words, n);
		put(at, draw(3) ? 0 : n, text, n);
	}
}

static void put_compared(size_t at)
{
	uint64_t v = compared[draw(COMPARED)] + draw(3) - 1;
	char text[30];

	if (draw(2)) {
		snprintf(text, sizeof(text), "%lld", (long long)v);
		put(at, draw(2) ? 0 : strlen(text), text, strlen(text));
	} else {
		size_t n = (size_t)1 << draw(4);

		put(at, n, &v, n);
	}
}

static void change(const struct corpus *c, const char *words)
{
	size_t at = draw(now->n + 1), n = 1 + draw(draw(2) ? 8 : 64);
	const struct bytes *other = &c->all[draw(c->n)];
	uint8_t byte = (uint8_t)draw(256);

	switch (draw(9)) {
	case 0: put(at, 1, &byte, 1); break;
	case 1: put(at, 0, &byte, 1); break;
	case 2: put(at, n, "", 0); break;
	case 3:
	case 4: put_word(words, at); break;
	case 5: put_compared(at); break;
	case 6: /* a piece of another, or of itself */
		if (other->n) {
			size_t from = draw(other->n);

			put(at, draw(2) ? 0 : n, other->at + from, n < other->n - from ? n : other->n - from);
		}
		break;
	case 7:
		if (at < now->n)
			now->at[at] ^= (uint8_t)(1u << draw(8));
		break;
	default:
		if (at < now->n)
			now->at[at] = (uint8_t)(now->at[at] + draw(3) - 1);
	}
}

int hd_fuzz_goes_on(int one_of)
{
	return !searching || more || !draw((uint64_t)one_of);
}

/* -- runs -------------------------------------------------------------------------------------- */
static void one(const struct hd_fuzz_input *input)
{
	uint8_t *exact = malloc(now->n ? now->n : 1); /* so that a byte too far is seen */

	memcpy(exact, now->at, now->n);
	alarm(HANG);
	more = 0;
	input->one(exact, now->n);
	now->runs++;
	free(exact);
}

static void load(const struct bytes *b)
{
	now->n = b->n;
	memcpy(now->at, b->at, b->n);
}

/* Runs each input once; what none before it ran stays. */
static void thin(const struct hd_fuzz_input *input, struct corpus *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		struct bytes b = c->all[i];

		load(&b);
		one(input);
		if (!more && n)
			free(b.at);
		else
			c->all[n++] = b;
	}
	c->n = n;
}

/* Mostly the shorter of two, which is quicker to run. */
static const struct bytes *one_of(const struct corpus *c)
{
	const struct bytes *a = &c->all[draw(c->n)], *b = &c->all[draw(c->n)];

	return a->n < b->n || !draw(4) ? a : b;
}

static void search(const struct hd_fuzz_input *input, struct corpus *c, int seconds)
{
	double end = hd_seconds() + seconds;

	searching = 1;
	thin(input, c);
	while (hd_seconds() < end) {
		load(one_of(c));
		for (uint64_t k = 1 + draw(draw(2) ? 2 : 8); k; k--)
			change(c, input->words);
		now->n = now->n < input->longest ? now->n : input->longest;
		one(input);
		if (!more)
			continue;
		add(c, now->at, now->n, "");
		if (kept)
			hd_fuzz_keep(kept, now->at, now->n);
	}
}

static void save(const char *name)
{
	char *path = hd_format("%s.crash", name);
	FILE *f = fopen(path, "wbe");

	if (f) {
		fwrite(now->at, 1, now->n, f);
		fclose(f);
		fprintf(stderr, "the input of %zu bytes is in %s\n", now->n, path);
	}
	free(path);
}

static int open_shared(void)
{
	if (!now)
		now = mmap(NULL, sizeof(*now), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (now == MAP_FAILED)
		return -1;
	now->n = 0;
	now->runs = 0;
	return 0;
}

/* -> 0, or -1: the child did not come to its end */
static int in_child(const struct hd_fuzz_input *input, struct corpus *c, int seconds)
{
	pid_t child;
	int status = 0;

	hd_fuzz_folder();
	fflush(NULL);
	child = fork();
	if (!child) {
		hd_log_init(1, -1);
		if (seconds)
			search(input, c, seconds);
		for (size_t i = 0; i < c->n && !seconds; i++) {
			load(&c->all[i]);
			one(input);
		}
		_exit(0);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	hd_fuzz_end();
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		fprintf(stderr, "%s: an input takes more than %d s\n", input->name, HANG);
	return status ? -1 : 0;
}

int64_t hd_fuzz_run(const struct hd_fuzz_input *input, const char *corpus, int seconds, uint64_t seed)
{
	struct corpus c = { 0 };
	double from = hd_seconds();
	int rc;

	if (open_shared() < 0)
		return -1;
	read_corpus(&c, corpus);
	kept = hd_fuzz_corpus(input->name);
	if (kept)
		read_corpus(&c, kept);
	seed += (uint64_t)hd_fuzz_tally(input->name);
	state = (seed + 1) * 0x9e3779b97f4a7c15;
	if (!c.n)
		add(&c, (const uint8_t *)"", 0, "");
	rc = in_child(input, &c, seconds);
	if (rc < 0)
		save(input->name);
	hd_fuzz_count(input->name, now->runs, hd_seconds() - from, seed, rc < 0);
	release(&c);
	free(kept);
	kept = NULL;
	return rc < 0 ? -1 : now->runs;
}

int64_t hd_fuzz_replay(const struct hd_fuzz_input *input, const char *corpus)
{
	struct corpus c = { 0 };
	int rc;

	if (open_shared() < 0)
		return -1;
	read_corpus(&c, corpus);
	rc = in_child(input, &c, 0);
	if (rc < 0 && now->runs < (int64_t)c.n)
		fprintf(stderr, "%s/%s\n", corpus, c.name[now->runs]);
	release(&c);
	return rc < 0 ? -1 : now->runs;
}
