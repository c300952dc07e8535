/* SPDX-License-Identifier: Apache-2.0
 * JSON in the format that the engine writes: numbers, and an object on one line.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/base/json.h"
#include <math.h>

json_t *hd_json_number(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

char *hd_json_line(json_t *v)
{
	char *line = json_dumps(v, JSON_REAL_PRECISION(15) | JSON_ENCODE_ANY);

	json_decref(v);
	return line ? line : hd_strdup("null");
}
