/* SPDX-License-Identifier: Apache-2.0
 * Metrics files as curves: each number of a line is a point of the curve that its key names.
 */
#include <config.h>
#include "engine/report/series.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct hd_curve *hd_curve_find(const struct hd_curves *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->all[i].name, name))
			return &c->all[i];
	return NULL;
}

static struct hd_curve *curve_of(struct hd_curves *c, const char *name)
{
	struct hd_curve *k = (struct hd_curve *)(uintptr_t)hd_curve_find(c, name);

	if (k)
		return k;
	c->all = hd_grow(c->all, c->n, &c->cap, sizeof(*c->all));
	c->all[c->n].name = hd_strdup(name);
	return &c->all[c->n++];
}

static void add(struct hd_curves *c, const char *name, double step, const json_t *v)
{
	struct hd_curve *k;

	if (!json_is_number(v)) /* null: it was not finite */
		return;
	k = curve_of(c, name);
	k->x = hd_grow(k->x, k->n, &k->cap_x, sizeof(*k->x));
	k->y = hd_grow(k->y, k->n, &k->cap_y, sizeof(*k->y));
	k->x[k->n] = step;
	k->y[k->n++] = json_number_value(v);
}

static int add_line(struct hd_curves *c, const char *line, int64_t number, struct hd_err *err)
{
	json_error_t at;
	json_t *o = json_loads(line, 0, &at), *v, *step = json_object_get(o, "step");
	const char *key;

	if (!json_is_number(step)) {
		json_decref(o);
		return hd_err_set(err, HD_EIO, "%s:%lld: is not a line of metrics: %s", c->path, (long long)number,
				  o ? "it has no step" : at.text);
	}
	json_object_foreach(o, key, v) {
		char name[100];

		if (strcmp(key, "step"))
			add(c, key, json_number_value(step), v);
		for (size_t i = 0; i < json_array_size(v); i++) {
			snprintf(name, sizeof(name), "%s.%zu", key, i);
			add(c, name, json_number_value(step), json_array_get(v, i));
		}
	}
	json_decref(o);
	return HD_OK;
}

int hd_curves_read(const char *path, struct hd_curves *c, struct hd_err *err)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;
	int64_t number = 0;
	int rc = HD_OK;

	c->path = path;
	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	for (; rc >= 0 && getline(&line, &room, f) > 0; number++)
		if (line[strspn(line, " \t\r\n")])
			rc = add_line(c, line, number + 1, err);
	if (rc >= 0 && !c->n)
		rc = hd_err_set(err, HD_EINVAL, "%s: has no numbers", path);
	free(line);
	fclose(f);
	return rc;
}

void hd_curves_free(struct hd_curves *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->all[i].name);
		free(c->all[i].x);
		free(c->all[i].y);
	}
	free(c->all);
	c->all = NULL;
	c->n = c->cap = 0;
}
