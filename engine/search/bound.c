/* SPDX-License-Identifier: Apache-2.0
 * Lower bounds and guesses for a whole layout, from its probe.
 *
 * A step's time is the sum of four terms. One is constant; the others grow with the layers, with the micro-batches, and
 * with the product of both. Four small plans give the four. Times of kernels and collectives add up, so for these the
 * sum over all stages is exact. The stage with most layers has at least the layers divided by the stages, rounded up.
 * How much of the communication overlaps with kernels is not known. So a step is bounded by what its ranks compute, and
 * by what its queues carry, but not by the sum of both.
 *
 * All probes and the whole model begin with the same dense layers. The constants contain how much more or less these
 * take than the layers that repeat, and are negative if it is less. With that the sum of all stages is exact. But the
 * stage with most of the repeating layers may have no dense one. So its bound divides only the repeating layers by the
 * stages.
 */
#include <config.h>
#include "engine/search/evaluate.h"
#include <math.h>

struct affine { /* a + b layers + micros (e + d layers) */
	double a, b, e, d;
};

static double smallest(const struct probe_shape *s) /* layers of the smaller plans of a probe */
{
	return (double)(s->dense + s->period);
}

static struct affine affine_of(const double v[HD_PROBES], const struct probe_shape *s)
{
	double q = (double)s->period, n = smallest(s), one = (v[1] - v[0]) / q, two = (v[3] - v[2]) / q;
	struct affine f = { .d = two - one };

	f.b = one - f.d;
	f.e = (v[2] - two * n) - (v[0] - one * n);
	f.a = (v[0] - one * n) - f.e;
	return f;
}

static double nonnegative(double a)
{
	return a > 0 ? a : 0;
}

/* Returns how many repeating layers the stage with most of them has at least, in whole periods. How the layers of a
 * partial period are distributed is not known. If all layers are alike, that stage has at least the mean, rounded up.
 * If not, the mean is not rounded up, since the chunks of a stage need not be neighbours. */
static double most_layers(const struct probe_shape *s)
{
	int64_t l = (s->layers - s->dense + (s->period > 1 ? 0 : s->stages - 1)) / s->stages;

	return (double)(l / s->period * s->period);
}

/* Returns the mean of all stages, counting whole periods only: the layers after the last period may be
 * the cheaper ones. */
static double stage_mean(const struct affine *f, const struct probe_shape *s)
{
	double m = (double)s->micros, l = (double)(s->dense + (s->layers - s->dense) / s->period * s->period);

	return (f->a + f->b * l + m * (f->e + f->d * l)) / (double)s->stages;
}

/* Returns a lower bound for the stage that has most of it. */
static double at_least(const struct affine *f, const struct probe_shape *s)
{
	double most = most_layers(s) * (nonnegative(f->b) + (double)s->micros * f->d);

	return nonnegative(larger_of(stage_mean(f, s), most));
}

/* Returns the time that ranks which share cores need at least, or 0 if they do not share any. All their work is done on
 * these cores (hd_machine_busy), and while one rank waits another works. */
static double shared_core_time(const struct probe *p, double mean)
{
	return p->crowd > 1 ? p->crowd * nonnegative(mean) : 0;
}

double hd_bound_step(const struct probe *p, const struct probe_shape *s)
{
	struct affine compute = affine_of(p->compute, s), sent = affine_of(p->collective, s);
	double queues = p->queues > 1 ? p->queues : 1;

	return larger_of(larger_of(at_least(&compute, s), at_least(&sent, s) / queues),
			 shared_core_time(p, stage_mean(&compute, s) + stage_mean(&sent, s)));
}

double hd_bound_memory(const struct probe *p, const struct probe_shape *s)
{
	return nonnegative(p->memory[1] - p->memory[0]) / (double)s->period * most_layers(s);
}

/* Returns the time of a micro-batch on the slowest stage: one with most layers, or the last one. Work that belongs to
 * no layer (rest) is mostly in the last stage. */
static double slowest_stage(double layer, double rest, double l, double n)
{
	return larger_of(layer * ceil(l / n), layer * floor(l / n) + rest);
}

double hd_guess_step(const struct probe *p, const struct probe_shape *s, const struct order_probe *o)
{
	struct affine f = affine_of(p->step, s);
	double m = (double)s->micros, l = (double)s->layers, n = (double)s->stages;
	double each = (f.e + f.d * l) / n, micro = larger_of(each, slowest_stage(f.d, f.e, l, n));

	return larger_of(larger_of((f.a + f.b * l) / n, 0) + m * micro + o->bubble * o->bubble_of * each,
			 shared_core_time(p, stage_mean(&f, s)));
}

/* Returns the chunks of micro-batches that a stage keeps. Their number is constant, or it grows linearly with the
 * micro-batches of a step. */
static double in_flight(const struct order_probe *o, double micros)
{
	double more = o->in_flight_more_of - o->in_flight_of;

	if (more <= 0)
		return o->in_flight;
	return o->in_flight + (o->in_flight_more - o->in_flight) * (micros - o->in_flight_of) / more;
}

/* Guesses the memory of a stage from plans k and k + 1 of the probe, which differ by a period of layers. kept_times:
 * how many times the activations count that a layer keeps of one micro-batch. states: the share that counts of the
 * layer's other memory, which does not depend on the micro-batches in flight. */
static double guess_memory(const struct probe *p, const struct probe_shape *s, int k, double kept_times, double states)
{
	double q = (double)s->period, layers = ceil((double)s->layers / (double)s->stages);
	double kept = nonnegative(p->kept[k + 1] - p->kept[k]) / q;
	double state = nonnegative((p->memory[k + 1] - p->memory[k]) / q - kept);
	double rest = p->memory[k] - smallest(s) * (state + kept);

	return (s->stages > 1 ? 0.5 * nonnegative(rest) : rest) + states * state * layers + kept * kept_times;
}

double hd_guess_memory(const struct probe *p, const struct probe_shape *s, const struct order_probe *o)
{
	double chunk = (double)s->layers / ((double)s->stages * o->chunks);

	return guess_memory(p, s, 2, chunk * in_flight(o, (double)s->micros), 1);
}

double hd_guess_quick_memory(const struct probe *p, const struct probe_shape *s, double states)
{
	double layers = ceil((double)s->layers / (double)s->stages);

	return guess_memory(p, s, 0, layers * (double)(s->micros < s->stages ? s->micros : s->stages), states);
}

double hd_guess_quick(const struct probe *p, const struct probe_shape *s)
{
	double q = (double)s->period, few = smallest(s), l = (double)s->layers, n = (double)s->stages;
	double micro = (p->units[1] - p->units[0]) / q, once = (p->step[1] - p->step[0]) / q - micro;
	double rest = p->units[0] - micro * few, rest_once = p->step[0] - p->units[0] - once * few;

	double begin = larger_of((once * l + rest_once) / n, 0), m = (double)s->micros;

	return larger_of(begin + m * larger_of((micro * l + rest) / n, slowest_stage(micro, rest, l, n)),
			 shared_core_time(p, begin + m * (micro * l + rest) / n));
}
