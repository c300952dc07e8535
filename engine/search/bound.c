/* SPDX-License-Identifier: Apache-2.0
 * A step's time is a constant, so much a layer, so much a micro-batch, and so much a layer and micro-batch: four probes give
 * the four.  Kernels and collectives add up, so for them that is exact, and a layout on stages has them to do on some of
 * its ranks: the stage with most layers has at least the layers divided by the stages, rounded up.  What hides behind
 * what is not known, so a step is bounded by what its ranks compute, and by what its queues carry, not by the sum.
 *
 * All probes and the whole model begin with the same dense layers.  So the constants contain what those take less or more than
 * the layers that repeat, and are negative where it is less.  The sum of all stages is exact with it.  The stage with most of the
 * layers that repeat may have no dense one: these are not among the layers that are divided by the stages there.
 */
#include <config.h>
#include "engine/search/evaluate.h"
#include <math.h>

struct affine { /* a + b layers + micros (e + d layers) */
	double a, b, e, d;
};

static double smallest(const struct probe_shape *s) /* layers of the smaller probes */
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

static double least(double a)
{
	return a > 0 ? a : 0;
}

/* Layers that repeat, of the stage that has most, in whole periods: how those between are spread is not known.  Of layers that are all
 * alike it has at least the mean, rounded up; of others not, since chunks of a stage need not be neighbours. */
static double most_layers(const struct probe_shape *s)
{
	int64_t l = (s->layers - s->dense + (s->period > 1 ? 0 : s->stages - 1)) / s->stages;

	return (double)(l / s->period * s->period);
}

/* Of a stage in the mean, in whole periods: the layers behind the last one may be the cheaper ones. */
static double even(const struct affine *f, const struct probe_shape *s)
{
	double m = (double)s->micros, l = (double)(s->dense + (s->layers - s->dense) / s->period * s->period);

	return (f->a + f->b * l + m * (f->e + f->d * l)) / (double)s->stages;
}

/* Of the stage that has most of it. */
static double at_least(const struct affine *f, const struct probe_shape *s)
{
	double most = most_layers(s) * (least(f->b) + (double)s->micros * f->d);

	return least(larger_of(even(f, s), most));
}

/* Ranks that share cores: all that they do is done on these (hd_machine_busy), and while one waits another works. */
static double shared_out(const struct probe *p, double even)
{
	return p->crowd > 1 ? p->crowd * least(even) : 0;
}

double hd_bound_step(const struct probe *p, const struct probe_shape *s)
{
	struct affine compute = affine_of(p->compute, s), sent = affine_of(p->collective, s);
	double queues = p->queues > 1 ? p->queues : 1;

	return larger_of(larger_of(at_least(&compute, s), at_least(&sent, s) / queues),
			 shared_out(p, even(&compute, s) + even(&sent, s)));
}

double hd_bound_memory(const struct probe *p, const struct probe_shape *s)
{
	return least(p->memory[1] - p->memory[0]) / (double)s->period * most_layers(s);
}

/* Of a micro-batch on the slowest stage, and on one of average work.  What belongs to no layer is mostly the last stage's. */
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
			 shared_out(p, even(&f, s)));
}

/* Chunks of micro-batches that a stage keeps: as measured, or growing with the micro-batches of a step. */
static double in_flight(const struct order_probe *o, double micros)
{
	double more = o->in_flight_more_of - o->in_flight_of;

	if (more <= 0)
		return o->in_flight;
	return o->in_flight + (o->in_flight_more - o->in_flight) * (micros - o->in_flight_of) / more;
}

/* Probes k and k + 1: so many times what a layer keeps of a micro-batch, and `states` of what it keeps whatever is in flight. */
static double guess_memory(const struct probe *p, const struct probe_shape *s, int k, double kept_times, double states)
{
	double q = (double)s->period, layers = ceil((double)s->layers / (double)s->stages);
	double kept = least(p->kept[k + 1] - p->kept[k]) / q;
	double state = least((p->memory[k + 1] - p->memory[k]) / q - kept);
	double rest = p->memory[k] - smallest(s) * (state + kept);

	return (s->stages > 1 ? 0.5 * least(rest) : rest) + states * state * layers + kept * kept_times;
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
			 shared_out(p, begin + m * (micro * l + rest) / n));
}
