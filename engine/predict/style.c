/* SPDX-License-Identifier: Apache-2.0
 * Reads the INI of a style: section [style].
 */
#include <config.h>
#include "engine/config/conf.h"
#include "engine/file/installed.h"
#include "engine/predict/style.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct hd_style hd_style_heddle = { .name = "heddle", .kernels = 1 };

static const struct hd_option keys[] = {
	{ "name", HD_OPT_STR, 0, "", NULL, "name of the style" },
	{ "kernels", HD_OPT_NUM, 0, "1", "0.1..10",
	  "how many times as long as moving their bytes its own kernels take; fitted to runs" },
	{ "pass", HD_OPT_NUM, 0, "0", "0..1",
	  "extra seconds of each pass over a layer of a micro-batch: forward, recomputed forward, backward; fitted "
	  "to runs" },
	{ "step", HD_OPT_NUM, 0, "0", "0..10",
	  "extra seconds of each step whose forward and backward have collectives between nodes; fitted to runs" },
	{ "elementwise", HD_OPT_CHOICE, 0, "heddle", "heddle|own",
	  "own: all kernels without products are the framework's own, one for each operator" },
	{ "attention", HD_OPT_CHOICE, 0, "fused", "fused|scores",
	  "scores: separate kernels store, mask, drop out and read the s x s scores" },
	{ "attention_forward", HD_OPT_NUM, 0, "0", "0..1",
	  "share of the peak of the previous generation's instructions that its fused attention reaches (0: as the "
	  "machine says)" },
	{ "attention_backward", HD_OPT_NUM, 0, "0", "0..1", "the same for the gradient of attention" },
	{ "norms", HD_OPT_CHOICE, 0, "once", "once|twice",
	  "twice: a norm and its gradients read their operands twice" },
	{ "dropout", HD_OPT_BOOL, 0, "no", NULL, "masks of dropout are written in forward and read in backward" },
	{ "gradients", HD_OPT_CHOICE, 0, "fused", "fused|apart",
	  "apart: weight gradients are computed in 16 bits, and separate kernels add them to the fp32 sums" },
	{ "residuals", HD_OPT_CHOICE, 0, "fused", "fused|apart", "apart: separate kernels add the residuals" },
	{ "loss", HD_OPT_CHOICE, 0, "fused", "fused|twice|apart",
	  "twice: logits are read again for their gradient; apart: and the loss is computed in fp32, with a kernel "
	  "for each step" },
	{ "logits", HD_OPT_CHOICE, 0, "parts", "parts|whole",
	  "whole: all logits of a micro-batch exist at once, unless train.loss_parts is given" },
	{ "optimizer", HD_OPT_CHOICE, 0, "fused", "fused|apart",
	  "apart: separate kernels scale back, check, clip and clear the gradients" },
	{ "recompute", HD_OPT_CHOICE, 0, "needed", "needed|layer",
	  "layer: train.recompute = full recomputes everything of a layer, even what nothing reads" },
	{ "gather", HD_OPT_CHOICE, 0, "tensor", "tensor|layer",
	  "layer: the parts of all parameters of a layer are gathered as one, and their gradients summed as one" },
	{ "scatter", HD_OPT_CHOICE, 0, "overlap", "overlap|wait",
	  "wait: kernels wait while gradients of a layer are summed and scattered" },
	{ "parameters", HD_OPT_CHOICE, 0, "overlap", "overlap|wait",
	  "wait: kernels wait while parameters are gathered after an update of pieces" },
	{ "all_reduce", HD_OPT_CHOICE, 0, "faster", "faster|rings",
	  "rings: sums for all members move over rings; faster: over rings or trees" },
	{ "collectives", HD_OPT_CHOICE, 0, "overlap", "overlap|wait",
	  "wait: kernels wait while a collective is under way" },
	{ "messages", HD_OPT_CHOICE, 0, "overlap", "overlap|wait",
	  "wait: kernels also wait while a message to another stage is under way" },
	{ "sync", HD_OPT_CHOICE, 0, "overlap", "overlap|late",
	  "late: gradients are summed over replicas only after all backward passes" },
	{ "saved", HD_OPT_CHOICE, 0, "needed", "needed|all",
	  "all: operands of all kernels are kept for backward, those of norms and dropout too" },
};

static int is(const struct hd_section *s, const char *key, const char *value)
{
	return !strcmp(hd_section_str(s, key), value);
}

static void take(const struct hd_section *s, const char *path, struct hd_style *out)
{
	const char *name = hd_section_str(s, "name");

	snprintf(out->name, sizeof(out->name), "%s", name[0] ? name : path);
	out->kernels = hd_section_num(s, "kernels");
	out->pass = hd_section_num(s, "pass");
	out->step = hd_section_num(s, "step");
	out->attention = is(s, "attention", "scores") ? HD_ATTENTION_SCORES : HD_ATTENTION_FUSED;
	out->attention_share[0] = hd_section_num(s, "attention_forward");
	out->attention_share[1] = hd_section_num(s, "attention_backward");
	out->norms_twice = is(s, "norms", "twice");
	out->dropout = (int)hd_section_int(s, "dropout");
	out->separate_weight_gradient_adds = is(s, "gradients", "apart");
	out->separate_residual_adds = is(s, "residuals", "apart");
	out->loss_twice = !is(s, "loss", "fused");
	out->unfused_loss = is(s, "loss", "apart");
	out->undivided_logits = is(s, "logits", "whole");
	out->unfused_optimizer = is(s, "optimizer", "apart");
	out->recompute_layer = is(s, "recompute", "layer");
	out->own_elementwise = is(s, "elementwise", "own");
	out->gather_layer = is(s, "gather", "layer");
	out->scatter_waits = is(s, "scatter", "wait");
	out->parameters_wait = is(s, "parameters", "wait");
	out->rings_only = is(s, "all_reduce", "rings");
	out->collectives_wait = is(s, "collectives", "wait");
	out->messages_wait = is(s, "messages", "wait");
	out->sync_late = is(s, "sync", "late");
	out->saved_all = is(s, "saved", "all");
}

int hd_style_read(const char *name, struct hd_style *s, struct hd_err *err)
{
	static const struct hd_key_table table = { keys, HD_LEN(keys), 0 };
	static const char *const names[] = { "style", NULL }, *const kinds[] = { NULL };
	struct hd_conf *c = NULL;
	struct hd_section *section;
	char *path;

	*s = hd_style_heddle;
	if (!name || !strcmp(name, hd_style_heddle.name)) /* never a file of that name, which may be the program */
		return HD_OK;
	path = hd_installed_find("styles", name, err);
	if (!path)
		return err->code;
	if (hd_conf_read(path, NULL, 0, &c, err) >= 0 && hd_conf_known(c, names, kinds, err) >= 0) {
		section = hd_conf_section(c, NULL, "style");
		if (hd_section_check(c, section, &table, 1, err) >= 0)
			take(section, path, s);
	}
	hd_conf_destroy(c);
	free(path);
	return err->code;
}
