/* SPDX-License-Identifier: Apache-2.0
 * Several files with weights: shares are exact in any window, and no sample of a file is left out or taken twice.  A
 * share that is right on average but wrong over a thousand steps, or a file whose epochs depend on another's, shows in
 * no loss.
 */
#include <config.h>
#include "engine/data/data.h"
#include "engine/data/mix.h"
#include "t/lib/tap.h"
#include <unistd.h>

static struct hd_err err;

static const char *mix(struct hd_mix *m, const char *text, size_t n)
{
	hd_mix_release(m);
	memset(&err, 0, sizeof(err));
	hd_mix_read(text, n, m, &err);
	return err.text;
}

/* In each window of `sum` samples, source i has exactly want[i], and its samples are numbered without a gap. */
static void windows(const char *text, size_t n, const int64_t *want, int64_t sum, int64_t from)
{
	struct hd_mix m = { 0 };
	int64_t count[4] = { 0 }, next[4] = { 0 }, far = 5 * sum, bad = 0, index;

	is_str(mix(&m, text, n), "", text);
	for (size_t i = 0; i < n; i++)
		is_int(m.weights[i], want[i], "the weight is read as a whole number");
	for (int64_t g = from; g < from + far; g++) {
		size_t i = hd_mix_at(&m, g, &index);

		bad += i >= n || (g > from + sum && next[i] != index);
		next[i] = index + 1;
		count[i]++;
		if (g >= from + sum) {
			int64_t ignored;

			count[hd_mix_at(&m, g - sum, &ignored)]--;
		}
		for (size_t k = 0; g >= from + sum - 1 && k < n; k++)
			bad += count[k] != want[k];
	}
	is_int(bad, 0, "shares are exact in each window, and no sample is left out");
	hd_mix_release(&m);
}

/* After any number of samples, each source is off its share by less than the number of sources. */
static void lengths(void)
{
	static const double share[] = { 0.5, 0.25, 0.125, 0.125 };
	int64_t count[4] = { 0 }, index;
	struct hd_mix m = { 0 };
	double worst = 0;

	mix(&m, "4, 2, 1, 1", 4);
	for (int64_t g = 0; g < 1000; g++) {
		count[hd_mix_at(&m, g, &index)]++;
		for (int i = 0; i < 4; i++)
			worst = fmax(worst, fabs((double)count[i] - share[i] * (double)(g + 1)));
	}
	ok(worst < 4, "a source is at most %g samples away from its share", worst);
	hd_mix_release(&m);
}

static const char *open_data(struct hd_data **d, const char *keys, const char *weights)
{
	char *text = hd_format("[data]\ntrain = a.txt, b.txt\nvalid_fraction = 0\n%sweights = %s\n", keys, weights);
	struct hd_conf *c;

	hd_data_close(*d);
	*d = NULL;
	memset(&err, 0, sizeof(err));
	if (hd_conf_parse("x.ini", text, NULL, 0, &c, &err) >= 0) {
		hd_data_open(c, 4, 256, 1, d, &err);
		hd_conf_destroy(c);
	}
	free(text);
	return err.text;
}

static void put(const char *name, int first, int n)
{
	FILE *f = fopen(name, "w");

	for (int i = 0; i < n; i++)
		putc(first + i / 4, f);
	fclose(f);
}

/* a.txt has 5 windows and b.txt 10; their bytes tell which.  Weights 3 and 1 give a.txt 15 of 20 samples, three epochs,
 * and b.txt 5, half an epoch. */
static void of_files(void)
{
	int seen[128] = { 0 }, bad = 0;
	struct hd_data *d = NULL;
	int32_t ids[5];

	put("a.txt", '0', 21);
	put("b.txt", 'a', 41);
	is_str(open_data(&d, "", "3, 1"), "", "two files with weights are opened");
	for (int64_t g = 0; g < 20; g++) { /* the first five of b.txt */
		hd_data_sample(d, 0, g, ids, &err);
		seen[ids[0]]++;
	}
	for (int i = 0; i < 5; i++)
		bad += seen['0' + i] != 3;
	is_int(bad, 0, "20 samples have each window of a.txt three times");
	bad = 0;
	for (int i = 0; i < 10; i++)
		bad += seen['a' + i] > 1;
	is_int(bad, 0, "... and no window of b.txt twice");
	for (int64_t g = 20; g < 40; g++) {
		int32_t again[5];

		hd_data_sample(d, 0, g, ids, &err);
		hd_data_sample(d, 17, g - 17, again, &err);
		seen[ids[0]]++;
		bad += memcmp(ids, again, sizeof(ids)) != 0;
	}
	is_int(bad, 0, "a sample depends on its number alone");
	for (int i = 0; i < 10; i++)
		bad += seen['a' + i] != 1;
	is_int(bad, 0, "40 samples have each window of b.txt once");
	is_str(open_data(&d, "", "3"), "x.ini:4: [data] weights: 1 number, but train has 2 names",
	       "fewer weights than files are refused");
	is_str(open_data(&d, "", "3, 0"), "x.ini:4: [data] weights: '0' is not a number above 0 and at most 1000000",
	       "a weight of zero is refused");
	is_str(open_data(&d, "", "1, 0.0000000001"),
	       "x.ini:4: [data] weights: 0.0000000001 has more than 9 digits after the point",
	       "a weight with more than 9 digits after the point is refused");
	hd_data_close(d);
}

int main(void)
{
	char dir[] = "/tmp/hd-mix-XXXXXX";
	static const int64_t two[] = { 3, 1 }, three[] = { 7, 2, 1 }, odd[] = { 3, 5, 11, 13 };

	windows("0.75, 0.25", 2, two, 4, 0);
	windows("0.7, 0.2, 0.1", 3, three, 10, 12345678901ll);
	windows("3, 5, 11, 13", 4, odd, 32, 7);
	lengths();
	if (!mkdtemp(dir) || chdir(dir))
		puts("Bail out! no folder");
	of_files();
	unlink("a.txt"), unlink("b.txt");
	if (!chdir("/"))
		rmdir(dir);
	return done();
}
