/* SPDX-License-Identifier: Apache-2.0
 * Logs the messages of plugins.
 */
#include <config.h>
#include "engine/host/host_impl.h"

struct held_message {
	struct held_message *next;
	int level;
	char text[];
};

/* Logs a plugin's message. Slots up to rules are called for two plans: first for one that only asks about
 * the batch, then for the real one. To print their messages once, the first plan holds them back, and prints
 * them only if it fails. */
void hd_host_log(struct hd_plan *p, int level, const char *text)
{
	struct held_message *m, **end = &p->held;

	if (p->quiet && level >= HD_LOG_WARN)
		return;
	if (!p->asking) {
		hd_log_once(level, "%s", text);
		return;
	}
	m = hd_plan_alloc(p, sizeof(*m) + strlen(text) + 1);
	m->level = level;
	memcpy(m->text, text, strlen(text) + 1);
	while (*end)
		end = &(*end)->next;
	*end = m;
}

void hd_host_messages(const struct hd_plan *p)
{
	for (const struct held_message *m = p->held; m; m = m->next)
		hd_log_once(m->level, "%s", m->text);
}
