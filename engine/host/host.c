/* SPDX-License-Identifier: Apache-2.0
 * The functions that plugins call: struct hd_host (heddle/host.h). Those about the layout are in host_mesh.c; the
 * table of those about the graph is in host_graph.c. They are thin: each checks that the plugin may call it now, then
 * calls the engine's own function.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/file/file.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hd_in_slot(const struct hd_plan *p, const char *slot)
{
	return p->slot.name && !strcmp(p->slot.name, slot);
}

int hd_out_of_turn(struct hd_plan *p, const char *what, const char *slot)
{
	return hd_plan_fail(p, HD_EBUG, "%s may be called in slot %s only, not in %s", what, slot,
			    p->slot.name ? p->slot.name : "none");
}

/* -- messages, errors, memory -------------------------------------------------------------------------------------- */
static void host_log(struct hd_plan *p, int32_t level, const char *file, int32_t line, const char *fmt, ...)
{
	const char *who = p->slot.inst >= 0 ? p->inst[p->slot.inst].name : "?";
	char *text, *all;
	va_list v;

	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	all = level == HD_LOG_DEBUG ? hd_format("%s (%s:%d): %s", who, file, line, text)
				    : hd_format("%s: %s", who, text);
	hd_host_log(p, level, all);
	free(text);
	free(all);
}

static int host_fail(struct hd_plan *p, int32_t code, const char *fmt, ...)
{
	char *text;
	va_list v;

	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	if (code < HD_EIO || code > HD_EINVAL) {
		hd_plan_fail(p, HD_EINVAL, "%s (fail: %d is not one of the codes from HD_EINVAL %d to HD_EIO %d)", text,
			     code, HD_EINVAL, HD_EIO);
		code = HD_EINVAL;
	} else if (p->slot.inst < 0) {
		hd_plan_fail(p, code, "%s", text);
	} else {
		hd_inst_fail(p, p->slot.inst, code, text);
	}
	free(text);
	return code;
}

static void *host_alloc(struct hd_plan *p, size_t bytes)
{
	const size_t most = (size_t)1 << 36;

	if (bytes <= most)
		return hd_plan_alloc(p, bytes);
	return hd_plan_fail(p, HD_ENOMEM, "alloc: %zu bytes, more than %zu", bytes, most), NULL;
}

static int host_status(struct hd_plan *p)
{
	return p->err->code;
}

static const void *host_query(struct hd_plan *p, const char *feature)
{
	if (!feature)
		return hd_plan_fail(p, HD_EBUG, "query: the feature is NULL"), NULL;
	if (strcmp(feature, "heddle.node_size") != 0)
		return NULL;
	if (p->node_asked)
		*p->node_asked = 1;
	return &p->node_size;
}

/* -- options ------------------------------------------------------------------------------------------------------- */
static struct hd_section *mine(struct hd_plan *p)
{
	return p->inst[p->slot.inst < 0 ? 0 : p->slot.inst].section;
}

/* Checks that the plugin declares this option with one of these types; otherwise it would silently read as 0. */
static int declared(struct hd_plan *p, const char *call, const char *key, uint32_t types)
{
	const struct hd_option *x = hd_option_find(&p->inst[p->slot.inst < 0 ? 0 : p->slot.inst], key);

	if (!x)
		return hd_plan_fail(p, HD_EBUG, "%s: the plugin declares no option %s", call, key ? key : "(NULL)"), 0;
	if (!(types >> x->type & 1))
		return hd_plan_fail(p, HD_EBUG, "%s: option %s is declared with a type that another call reads", call,
				    key),
		       0;
	return 1;
}

static int64_t host_int(struct hd_plan *p, const char *key)
{
	return declared(p, "opt_int", key, 1u << HD_OPT_INT | 1u << HD_OPT_BOOL | 1u << HD_OPT_BYTES)
		       ? hd_section_int(mine(p), key)
		       : 0;
}

static double host_num(struct hd_plan *p, const char *key)
{
	return declared(p, "opt_num", key, 1u << HD_OPT_NUM) ? hd_section_num(mine(p), key) : 0;
}

static const char *host_str(struct hd_plan *p, const char *key)
{
	return declared(p, "opt_str", key, 1u << HD_OPT_STR | 1u << HD_OPT_CHOICE) ? hd_section_str(mine(p), key) : "";
}

/* Reads a file; NULL on failure. A relative path is tried from the working directory first, then from the
 * directory of the INI file. */
static char *slurp(const struct hd_plan *p, const char *path, size_t *n)
{
	const char *ini = hd_conf_path(p->conf), *slash = strrchr(ini, '/');
	char *text = hd_file_slurp(path, n), *beside;

	if (text || errno == EISDIR || *path == '/' || !slash)
		return text;
	beside = hd_format("%.*s/%s", (int)(slash - ini), ini, path);
	text = hd_file_slurp(beside, n);
	free(beside);
	return text;
}

static const char *host_text(struct hd_plan *p, const char *key)
{
	const char *path = host_str(p, key);
	char *copy = NULL;
	size_t n = 0;
	char *text = slurp(p, path, &n);

	if (text && strlen(text) < n) { /* as a string it would end at the first zero byte */
		hd_section_fail(p->conf, mine(p), key, p->err, HD_EINVAL, "%s is not a text file: byte %zu is 0", path,
				strlen(text));
	} else if (text) {
		copy = hd_plan_alloc(p, n + 1);
		memcpy(copy, text, n);
	}
	free(text);
	return copy;
}

/* -- the table ----------------------------------------------------------------------------------------------------- */
const struct hd_host hd_host_table = {
	.size = sizeof(struct hd_host),
	.abi_major = HD_ABI_MAJOR,
	.abi_minor = HD_ABI_MINOR,
	.log = host_log,
	.fail = host_fail,
	.status = host_status,
	.alloc = host_alloc,
	.query = host_query,
	.opt_int = host_int,
	.opt_num = host_num,
	.opt_str = host_str,
	.opt_text = host_text,
	.dim = hd_host_dim,
	.dim_new = hd_host_dim_new,
	.axis = hd_host_axis,
	.axis_next = hd_host_axis_next,
	.group = hd_host_group,
	.rule = hd_host_rule,
	.block_next = hd_host_block_next,
	.stage = hd_host_stage,
	.unit = hd_host_unit,
	.graph = &hd_graph_table,
	.record = &hd_record_table,
};
