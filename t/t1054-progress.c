/* SPDX-License-Identifier: Apache-2.0
 * The line of a step.  On a terminal it is written over the one before: one that is longer than the terminal is wide leaves
 * a page of halves.
 */
#include <config.h>
#include "engine/human/human.h"
#include "engine/train/progress.h"
#include "t/lib/tap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_numbers n = { .step = 3,
				     .total_tokens = 1200000,
				     .loss = 4.94894,
				     .norm = 1.6931,
				     .lr = 3e-4,
				     .seconds = 0.0379,
				     .tokens_per_second = 27005.2,
				     .share = 0.341,
				     .memory = 51.1e6,
				     .elapsed = 83,
				     .left = 5000 };

static char *line_of(const struct hd_numbers *of, int columns)
{
	char *text = hd_alloc(HD_PROGRESS_TEXT);

	hd_progress_text(text, of, 40, "matmul rate", columns);
	return text;
}

static char *line(int columns)
{
	return line_of(&n, columns);
}

/* 100 steps of a second, an evaluation of 3 each 10 and a save of 5 each 40. */
static void pace(void)
{
	struct hd_pace p = { .step = 0 };
	int64_t due[HD_PACE_KINDS] = { hd_pace_due(10, 9, 100), hd_pace_due(40, 9, 100), hd_pace_due(0, 9, 100) };

	ok(due[0] == 10 && due[1] == 3 && due[2] == 1, "what is due behind steps 10 to 100: %d, %d, %d", (int)due[0],
	   (int)due[1], (int)due[2]);
	hd_pace_step(&p, 50);
	ok(hd_pace_left(&p, 99, due) == 50 * 99, "the first step is all that there is");
	hd_pace_step(&p, 1);
	ok(hd_pace_left(&p, 98, due) == 98, "the second one takes its place");
	hd_pace_add(&p, HD_PACE_EVALUATION, 2);
	hd_pace_add(&p, HD_PACE_EVALUATION, 4);
	hd_pace_add(&p, HD_PACE_SAVE, 5);
	ok(fabs(hd_pace_left(&p, 90, due) - (90 + 10 * 3 + 3 * 5)) < 1e-9, "with evaluations and saves to come: %g",
	   hd_pace_left(&p, 90, due));
}

int main(void)
{
	struct hd_numbers bad = n;
	char *all = line(0), *text;

	is_str(all,
	       "step 3/40  loss 4.9489  norm 1.693  lr 3.00e-04  27005 tokens/s  37.9 ms/step  34% of matmul rate  "
	       "memory 51.1 MB  1.2 M tokens  elapsed 1m23s  ETA 1h23m",
	       "all of it, where there is no terminal");
	text = line((int)strlen(all));
	is_str(text, all, "and where it just fits");
	free(text);
	text = line((int)strlen(all) - 1);
	ok(strlen(text) < strlen(all) && !strstr(text, "elapsed") && strstr(text, "ETA"),
	   "the first to go is the elapsed time");
	free(text);
	for (int columns = (int)strlen(all); columns >= 39; columns--) {
		text = line(columns);
		if ((int)strlen(text) > columns)
			ok(0, "%d columns: %s", columns, text);
		free(text);
	}
	text = line(79);
	ok(strlen(text) <= 79 && strstr(text, "ETA 1h23m") && strstr(text, "ms/step"), "80 columns: %s", text);
	free(text);
	text = line(20);
	is_str(text, "step 3/40  loss 4.9489  27005 tokens/s", "step, loss and speed stay in any case");
	free(text);
	bad.left = INFINITY;
	text = line_of(&bad, 0);
	ok(strstr(text, "ETA ?") != NULL, "no time at all");
	free(text);
	free(all);
	bad = n;
	bad.loss = 49307835170816.0, bad.norm = 2e9;
	text = line_of(&bad, 0);
	ok(strstr(text, "loss 4.931e+13  norm 2e+09  ") != NULL, "a run that diverges: %s", text);
	free(text);
	pace();
	is_str(hd_human_time(999999999).text, "11574d01h", "the longest time that is said");
	is_str(hd_human_time(1e9).text, "?", "a longer one is not");
	return done();
}
