/* SPDX-License-Identifier: Apache-2.0
 * The progress line of a step.  On a terminal it overwrites the previous one; a line longer than the terminal is wide
 * would fill the screen with broken lines.
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

/* 100 steps of 1 s, an evaluation of 3 s every 10 steps, and a save of 5 s every 40. */
static void pace(void)
{
	struct hd_pace p = { .step = 0 };
	int64_t due[HD_PACE_KINDS] = { hd_pace_due(10, 9, 100), hd_pace_due(40, 9, 100), hd_pace_due(0, 9, 100) };

	ok(due[0] == 10 && due[1] == 3 && due[2] == 1,
	   "evaluations, saves and samples due after steps 10 to 100: %d, %d, %d", (int)due[0], (int)due[1],
	   (int)due[2]);
	hd_pace_step(&p, 50);
	ok(hd_pace_left(&p, 99, due) == 50 * 99, "after one step, the estimate uses that step");
	hd_pace_step(&p, 1);
	ok(hd_pace_left(&p, 98, due) == 98, "after the second step, the first no longer counts");
	hd_pace_add(&p, HD_PACE_EVALUATION, 2);
	hd_pace_add(&p, HD_PACE_EVALUATION, 4);
	hd_pace_add(&p, HD_PACE_SAVE, 5);
	ok(fabs(hd_pace_left(&p, 90, due) - (90 + 10 * 3 + 3 * 5)) < 1e-9,
	   "the estimate includes evaluations and saves to come: %g", hd_pace_left(&p, 90, due));
}

int main(void)
{
	struct hd_numbers bad = n;
	char *all = line(0), *text;

	is_str(all,
	       "step 3/40  loss 4.9489  norm 1.693  lr 3.00e-04  27005 tokens/s  37.9 ms/step  34% of matmul rate  "
	       "memory 51.1 MB  1.2 M tokens  elapsed 1m23s  ETA 1h23m",
	       "without a terminal the line is complete");
	text = line((int)strlen(all));
	is_str(text, all, "... as on a terminal that is just wide enough");
	free(text);
	text = line((int)strlen(all) - 1);
	ok(strlen(text) < strlen(all) && !strstr(text, "elapsed") && strstr(text, "ETA"),
	   "on a narrower terminal the elapsed time is left out first");
	free(text);
	for (int columns = (int)strlen(all); columns >= 39; columns--) {
		text = line(columns);
		if ((int)strlen(text) > columns)
			ok(0, "the line fits in %d columns: %s", columns, text);
		free(text);
	}
	text = line(79);
	ok(strlen(text) <= 79 && strstr(text, "ETA 1h23m") && strstr(text, "ms/step"),
	   "in 80 columns the line keeps the ETA and the time of a step: %s", text);
	free(text);
	text = line(20);
	is_str(text, "step 3/40  loss 4.9489  27005 tokens/s", "step, loss and speed remain on any terminal");
	free(text);
	bad.left = INFINITY;
	text = line_of(&bad, 0);
	ok(strstr(text, "ETA ?") != NULL, "an unknown time is printed as ?");
	free(text);
	free(all);
	bad = n;
	bad.loss = 49307835170816.0, bad.norm = 2e9;
	text = line_of(&bad, 0);
	ok(strstr(text, "loss 4.931e+13  norm 2e+09  ") != NULL,
	   "numbers of a run that diverges are printed with an exponent: %s", text);
	free(text);
	pace();
	is_str(hd_human_time(999999999).text, "11574d01h", "the longest duration that is printed");
	is_str(hd_human_time(1e9).text, "?", "a longer duration is printed as ?");
	return done();
}
