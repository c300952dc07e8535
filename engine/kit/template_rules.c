/* SPDX-License-Identifier: Apache-2.0
 * Templates of new-plugin: sources of strategies that consist of rules or a schedule.
 */
#include <config.h>
#include "engine/kit/templates.h"

/* clang-format off */
const char hd_kit_sharding[] =
	"/*\n"
	" * @NAME@: a strategy of rules only.  This one is sequence parallelism after Ulysses (Jacobs et al. 2309.14509): attention is\n"
	" * sharded over heads, everything else over the sequence.  The engine adds the all-to-alls between the two, and the sums of\n"
	" * gradients.  `heddle explain @NAME@.ini --ranks 2' shows them.\n"
	" */\n"
	"#include <heddle/strategy.h>\n"
	"\n"
	"static int rules(struct hd_strategy *self, struct hd_plan *p)\n"
	"{\n"
	"\tconst struct hd_basic *b = hd_basic_of(self);\n"
	"\n"
	"\thd_rule(b->h, p, \"heads\", b->axis, \"attention\", 0);\n"
	"\thd_rule(b->h, p, \"kv_heads\", b->axis, \"attention\", 0);\n"
	"\treturn hd_rule(b->h, p, \"seq\", b->axis, NULL, 0);\n"
	"}\n"
	"\n"
	"/* Without slots open and mesh, self is a struct hd_basic, and one axis is claimed, with the INI's number of members. */\n"
	"static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules };\n"
	"HD_PLUGIN(\"@NAME@\", \"0.1\", &ops)\n";

const char hd_kit_schedule[] =
	"/*\n"
	" * @NAME@: stages, and the order of their units.  This one is GPipe's (Huang et al. 1811.06965): all micro-batches forward, then\n"
	" * all backward.  The engine proves that each unit occurs once and that no stage waits forever; `heddle explain @NAME@.ini\n"
	" * --ranks 2 --schedule' draws it.\n"
	" */\n"
	"#include <heddle/strategy.h>\n"
	"\n"
	"static int rules(struct hd_strategy *self, struct hd_plan *p)\n"
	"{\n"
	"\tconst struct hd_basic *b = hd_basic_of(self);\n"
	"\n"
	"\treturn hd_rule(b->h, p, \"layer\", b->axis, NULL, 0); /* contiguous and even; hd_stage deals blocks one by one */\n"
	"}\n"
	"\n"
	"static int schedule(struct hd_strategy *self, struct hd_plan *p, int64_t micro_batches)\n"
	"{\n"
	"\tconst struct hd_basic *b = hd_basic_of(self);\n"
	"\n"
	"\tfor (int64_t stage = 0; stage < b->axis->n; stage++) {\n"
	"\t\tfor (int64_t m = 0; m < micro_batches; m++)\n"
	"\t\t\thd_unit(b->h, p, b->axis, stage, HD_UNIT_F, 0, m);\n"
	"\t\tfor (int64_t m = 0; m < micro_batches; m++)\n"
	"\t\t\thd_unit(b->h, p, b->axis, stage, HD_UNIT_B, 0, m);\n"
	"\t}\n"
	"\treturn b->h->status(p);\n"
	"}\n"
	"\n"
	"static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules, .schedule = schedule };\n"
	"HD_PLUGIN(\"@NAME@\", \"0.1\", &ops)\n";
