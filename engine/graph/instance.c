/* SPDX-License-Identifier: Apache-2.0
 * The instances of plugins, one per [strategy NAME] or [plugin NAME].  Messages about them name the section, and the
 * key if they can.  The cost of a node is here too, because a plugin's op may count it.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/plugin/turn.h"
#include <stdio.h>
#include <string.h>

const struct hd_option *hd_option_find(const struct inst *in, const char *key)
{
	const struct hd_strategy_ops *o = in->plugin->ops;

	for (uint32_t i = 0; key && i < o->noptions; i++) {
		const struct hd_option *x = (const void *)((const char *)o->options + i * o->option_size);

		if (!strcmp(x->key, key))
			return x;
	}
	return NULL;
}

const char *hd_inst_section(const struct inst *in)
{
	return in->extension ? "plugin" : "strategy";
}

/* Returns the key that a text is about.  That is KEY, if the text begins with "KEY: " and KEY is a key of the
 * instance's section; *rest is then the text after it.  Otherwise it is the key that names the plugin, and *rest is all
 * of the text. */
static const char *key_of(const struct inst *in, char *text, char **rest)
{
	const struct hd_strategy_ops *o = in->plugin->ops;
	size_t n = strcspn(text, ":");

	*rest = text;
	for (uint32_t i = 0; i <= o->noptions; i++) {
		const char *key = i == o->noptions
					  ? "size"
					  : ((const struct hd_option *)(const void *)((const char *)o->options +
										      i * o->option_size))
						    ->key;

		if (strlen(key) == n && !strncmp(key, text, n) && text[n] == ':' && text[n + 1] == ' ') {
			*rest = text + n + 2;
			return key;
		}
	}
	return in->extension ? "file" : "plugin";
}

int hd_inst_fail(struct hd_plan *p, int who, int code, const char *text)
{
	char *rest;
	const char *key;

	if (p->err->code)
		return p->err->code;
	key = key_of(&p->inst[who], hd_plan_text(p, "%s", text), &rest);
	return hd_section_fail(p->conf, p->inst[who].section, key, p->err, code, "%s", hd_one_line(rest));
}

/* For axis section.suffix, the key suffix sets the size if the plugin declares it; else the key size does. */
const char *hd_axis_key(const struct hd_plan *p, const struct hd_axis *axis)
{
	const struct inst *in = &p->inst[A(axis)->inst];
	const char *suffix = axis->name + strlen(in->name);

	return *suffix && hd_option_find(in, suffix + 1) ? suffix + 1 : "size";
}

static void note(const struct hd_plan *p)
{
	if (p->slot.inst >= 0 && p->slot.name)
		hd_turn_note(hd_inst_section(&p->inst[p->slot.inst]), p->inst[p->slot.inst].name,
			     p->inst[p->slot.inst].plugin->name, p->slot.name);
	else
		hd_turn_note(NULL, NULL, NULL, NULL);
}

struct hd_slot hd_slot_begin(struct hd_plan *p, int who, const char *name)
{
	struct hd_slot was = p->slot;

	if (who < 0)
		return was;
	p->slot = (struct hd_slot){ who, name };
	note(p);
	return was;
}

void hd_slot_end(struct hd_plan *p, struct hd_slot was)
{
	int noted = p->slot.inst != was.inst || p->slot.name != was.name;

	p->slot = was;
	if (noted)
		note(p);
}

/* Does not record the slot as running, because several threads call this at once. */
int hd_node_cost(const struct node *n, struct hd_cost *c)
{
	*c = (struct hd_cost){ .size = sizeof(*c) };
	return n->v.op->cost ? n->v.op->cost(n->inst >= 0 ? n->plan->inst[n->inst].self : NULL, &n->v, c) : HD_OK;
}

double hd_node_product_flops(const struct node *n)
{
	struct hd_cost c = { .size = sizeof(c) };

	if (!n->comm.kind)
		hd_node_cost(n, &c);
	return c.matmul_flops;
}

/* Turns the code that a slot returned into an error, unless the slot reported one itself. */
static int returned(struct hd_plan *p, const char *of, const char *op, int rc)
{
	if (p->err->code || rc == HD_OK || rc == HD_DEFAULT)
		return p->err->code;
	/* The plugin is wrong: it must report a text if it refuses a layout. */
	if (p->slot.inst >= 0)
		hd_plan_mistake(p, p->slot.inst);
	if (rc > 0)
		return hd_plan_fail(p, HD_EBUG,
				    "%s%sslot %s returned %d, which is not a status (enum in heddle/host.h)", of, op,
				    p->slot.name, rc);
	return hd_plan_fail(p, rc, "%s%sslot %s failed with code %d and no message", of, op, p->slot.name, rc);
}

int hd_slot_returned(struct hd_plan *p, int rc)
{
	return returned(p, "", "", rc);
}

int hd_op_slot_returned(struct hd_plan *p, const struct hd_op *op, int rc)
{
	return returned(p, op->name, ": ", rc);
}

/* Returns the fraction of the ranks that run the node, among those that could. */
static double share_of_members(const struct node *n)
{
	const struct hd_members *only = &n->only;

	return only->group ? (double)(only->to - only->from) / (double)only->group->n : 1;
}

double hd_plan_flops(const struct hd_plan *p)
{
	double sum = 0;

	for (const struct node *n = p->first; n; n = n->next) {
		struct hd_cost c = { .size = sizeof(c) };
		int64_t ranks = hd_plan_workers(p);

		if (!n->v.op->cost || !(n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W)))
			continue;
		hd_node_cost(n, &c);
		if (p->stages)
			ranks /= p->stages->v.n;
		sum += c.matmul_flops * (double)(p->micros * ranks) * share_of_members(n);
	}
	return sum;
}
