/* SPDX-License-Identifier: Apache-2.0
 * Numbers as people read them. A value moves to the next unit if its text would have five digits: 999.96 MB is 1.0 GB.
 */
#include <config.h>
#include "engine/human/human.h"
#include <math.h>
#include <stdio.h>

static struct hd_human scaled(double x, const char *const *units, int n)
{
	struct hd_human h;
	int u = 0;

	while (u + 1 < n && fabs(x) >= 999.95) {
		x /= 1000;
		u++;
	}
	snprintf(h.text, sizeof(h.text), "%.1f%s", x, units[u]);
	return h;
}

struct hd_human hd_human_bytes(double bytes)
{
	static const char *const units[] = { " KB", " MB", " GB", " TB", " PB", " EB" };
	struct hd_human h;

	if (fabs(bytes) >= 1000)
		return scaled(bytes / 1000, units, sizeof(units) / sizeof(units[0]));
	snprintf(h.text, sizeof(h.text), "%.0f bytes", bytes);
	return h;
}

void hd_human_two(double a, double b, struct hd_human text[2])
{
	static const char *const units[] = { "bytes", "KB", "MB", "GB", "TB", "PB", "EB" };
	double least = a < b ? a : b, scale = 1;
	int u = 0, digits;

	for (; u < 6 && least / scale >= 999.95; u++)
		scale *= 1000;
	digits = u > 0;
	while (digits < 3 * u && a != b && fabs(a - b) / scale < pow(10, -digits))
		digits++;
	snprintf(text[0].text, sizeof(text[0].text), "%.*f %s", digits, a / scale, units[u]);
	snprintf(text[1].text, sizeof(text[1].text), "%.*f %s", digits, b / scale, units[u]);
}

struct hd_human hd_human_count(double n)
{
	static const char *const units[] = { " K", " M", " G", " T" };
	struct hd_human h;

	if (fabs(n) >= 1000)
		return scaled(n / 1000, units, sizeof(units) / sizeof(units[0]));
	snprintf(h.text, sizeof(h.text), "%.0f", n);
	return h;
}

struct hd_human hd_human_rate(double flops)
{
	static const char *const units[] = { " FLOP/s",  " KFLOP/s", " MFLOP/s", " GFLOP/s",
					     " TFLOP/s", " PFLOP/s", " EFLOP/s" };

	return scaled(flops, units, sizeof(units) / sizeof(units[0]));
}

struct hd_human hd_human_seconds(double seconds)
{
	static const char *const below[] = { " us", " ms", " s" };

	if (seconds == 0)
		return (struct hd_human){ "0 s" };
	return scaled(seconds * 1e6, below, 3);
}

struct hd_human hd_human_step(double seconds)
{
	static const char *const units[] = { " us", " ms", " s" };
	struct hd_human h;
	double x = seconds * 1e6;
	int u = 0;

	for (; u < 2 && fabs(x) >= 999.5; u++)
		x /= 1000;
	snprintf(h.text, sizeof(h.text), "%.*f%s", fabs(x) < 9.995 ? 2 : fabs(x) < 99.95 ? 1 : 0, x, units[u]);
	return h;
}

struct hd_human hd_human_time(double seconds)
{
	struct hd_human h;
	double s = floor(seconds + 0.5);

	if (!(s < 1e9))
		return (struct hd_human){ "?" };
	if (s >= 86400)
		snprintf(h.text, sizeof(h.text), "%.0fd%02.0fh", floor(s / 86400), floor(fmod(s, 86400) / 3600));
	else if (s >= 3600)
		snprintf(h.text, sizeof(h.text), "%.0fh%02.0fm", floor(s / 3600), floor(fmod(s, 3600) / 60));
	else if (s >= 60)
		snprintf(h.text, sizeof(h.text), "%.0fm%02.0fs", floor(s / 60), fmod(s, 60));
	else
		snprintf(h.text, sizeof(h.text), "%.0fs", s);
	return h;
}
