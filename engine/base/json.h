/* SPDX-License-Identifier: Apache-2.0
 * engine/base/json.h - JSON as the engine writes it.
 */
#ifndef HD_ENGINE_JSON_H
#define HD_ENGINE_JSON_H
#include <jansson.h>

json_t *hd_json_number(double v); /* null where v is not finite: JSON has no NaN */
char *hd_json_line(json_t *v);    /* malloc'ed, in order of insertion, 15 digits; steals v */

#endif
