/* SPDX-License-Identifier: Apache-2.0
 * The global batch as a function of the tokens used so far, and of nothing else, so that a resumed run has the same
 * batch.
 */
#include <config.h>
#include "engine/config/ramp.h"
#include "engine/base/parse.h"
#include <stdio.h>

static int three(struct hd_conf *c, struct hd_section *t, const char *text, int64_t *x, struct hd_err *err)
{
	for (int i = 0; i < 3; i++) {
		char word[32] = "";
		int n = 0;

		if (sscanf(text, " %31[^, ] %n", word, &n) < 1 || hd_parse_count(word, &x[i]) < 0 || x[i] < 1 ||
		    text[n] != (i < 2 ? ',' : 0))
			return hd_section_fail(c, t, "global_batch_ramp", err, HD_EINVAL,
					       "must be START,STEP,TOKENS: sequences, sequences, tokens, all positive");
		text += n + 1;
	}
	return HD_OK;
}

int hd_ramp_read(struct hd_conf *c, struct hd_section *t, struct hd_ramp *r, struct hd_err *err)
{
	const char *text = hd_section_str(t, "global_batch_ramp");
	int64_t x[3];

	*r = (struct hd_ramp){ .full = hd_section_int(t, "global_batch"), .seq = hd_section_int(t, "seq") };
	if (!text[0])
		return HD_OK;
	HD_TRY(three(c, t, text, x, err));
	if (x[0] > r->full || (r->full - x[0]) % x[1])
		return hd_section_fail(c, t, "global_batch_ramp", err, HD_EDIVIDE,
				       "from %lld in steps of %lld the ramp does not reach global_batch = %lld",
				       (long long)x[0], (long long)x[1], (long long)r->full);
	r->start = x[0], r->step = x[1], r->tokens = x[2];
	r->steps = (r->full - r->start) / r->step;
	return HD_OK;
}

int64_t hd_ramp_size(const struct hd_ramp *r, int64_t k)
{
	return k >= r->steps ? r->full : r->start + k * r->step;
}

/* Computed in integers: a quotient of doubles may be just below the whole number at which a size ends. */
int64_t hd_ramp_batch(const struct hd_ramp *r, __int128 tokens)
{
	if (!r->steps || tokens >= r->tokens)
		return r->full;
	return hd_ramp_size(r, (int64_t)(tokens * r->steps / r->tokens));
}

int64_t hd_ramp_samples(const struct hd_ramp *r, __int128 tokens, int64_t steps)
{
	int64_t samples = 0, batch;

	while (steps > 0 && (batch = hd_ramp_batch(r, tokens)) < r->full) {
		samples += batch;
		tokens += (__int128)batch * r->seq;
		steps--;
	}
	return steps > 0 ? samples + steps * r->full : samples;
}

int64_t hd_ramp_last(const struct hd_ramp *r, int64_t tokens, int64_t steps)
{
	return tokens + hd_ramp_samples(r, tokens, steps) * r->seq;
}
