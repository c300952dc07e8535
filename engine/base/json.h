/* SPDX-License-Identifier: Apache-2.0
 * engine/base/json.h - JSON in the format that the engine writes.
 */
#ifndef HD_ENGINE_JSON_H
#define HD_ENGINE_JSON_H
#include <jansson.h>

json_t *hd_json_number(double v); /* returns null if v is not finite, since JSON has no NaN */
/* Returns v on one line, keys in order of insertion, 15 digits; the caller frees it. Takes over the reference v. */
char *hd_json_line(json_t *v);

#endif
