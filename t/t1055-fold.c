/* SPDX-License-Identifier: Apache-2.0
 * Printing equal lines of several layers as one.  If a layer that moves more data were folded into its neighbours,
 * nobody would notice it.
 */
#include <config.h>
#include "engine/report/fold.h"
#include "t/lib/tap.h"
#include "engine/base/err.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hd_fold f;

static void add(const char *unit, const char *block, const char *after)
{
	hd_fold_add(&f, unit, block, hd_format("%s ", unit), hd_format(" %s\n", after));
}

/* Returns the printed text, with runs of blanks reduced to one. */
static const char *printed(int folded)
{
	static char text[2000];
	char path[] = "/tmp/heddle-fold-XXXXXX";
	int fd = mkstemp(path), was = dup(1);
	ssize_t n;
	char *to = text;

	fflush(stdout);
	dup2(fd, 1);
	hd_fold_print(&f, folded);
	fflush(stdout);
	dup2(was, 1);
	n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	for (const char *s = text; *s; s++)
		if (*s != ' ' || to == text || to[-1] != ' ')
			*to++ = *s;
	*to = 0;
	close(fd), close(was), unlink(path);
	return text;
}

static void layers(int from, int to, const char *bytes)
{
	for (int i = from; i <= to; i++) {
		char *name = hd_format("layer %d", i),
		     *text = hd_format("%s h.%d.w needed by add of layer %d on 2", bytes, i, i + 1);

		add("forward", name, text);
		free(text);
		/* the name is the caller's, and must stay until it is printed */
	}
}

int main(void)
{
	add("forward", "embed", "1 KB");
	layers(0, 3, "8 KB");
	add("forward", "head", "2 KB");
	is_str(printed(1),
	       "forward embed 1 KB\nforward layer 0-3 8 KB h.0.w needed by add of layer 1 on 2\nforward head 2 KB\n",
	       "four layers whose lines differ only in the layer's number are one line");
	layers(0, 1, "8 KB");
	layers(2, 2, "9 KB");
	layers(3, 4, "8 KB");
	is_str(printed(1),
	       "forward layer 0-1 8 KB h.0.w needed by add of layer 1 on 2\nforward layer 2 9 KB h.2.w needed by add of layer 3 on 2\n"
	       "forward layer 3-4 8 KB h.3.w needed by add of layer 4 on 2\n",
	       "a layer that moves more has its own line");
	layers(0, 0, "8 KB");
	layers(2, 2, "8 KB");
	is_str(printed(1),
	       "forward layer 0 8 KB h.0.w needed by add of layer 1 on 2\nforward layer 2 8 KB h.2.w needed by add of layer 3 on 2\n",
	       "layers that are not consecutive are not folded");
	layers(0, 1, "8 KB");
	layers(0, 0, "8 KB");
	is_str(printed(1),
	       "forward layer 0-1 8 KB h.0.w needed by add of layer 1 on 2\nforward layer 0 8 KB h.0.w needed by add of layer 1 on 2\n",
	       "a layer that comes again begins a new line");
	add("backward", "layer 2", "x");
	add("weight-gradient", "layer 2", "y");
	add("backward", "layer 1", "x");
	add("weight-gradient", "layer 1", "y");
	is_str(printed(1), "backward layer 2-1 x\nweight-gradient layer 2-1 y\n",
	       "two kinds of units are folded, in descending order of layers");
	add("backward", "layer 2", "x");
	add("backward", "layer 1", "x");
	add("weight-gradient", "layer 1", "y");
	is_str(printed(1), "backward layer 2 x\nbackward layer 1 x\nweight-gradient layer 1 y\n",
	       "a layer with more lines than its neighbour is not folded");
	add("forward", "layer 1", "on pp 0");
	add("forward", "layer 2", "on pp 1");
	is_str(printed(1), "forward layer 1 on pp 0\nforward layer 2 on pp 1\n",
	       "lines that differ in a number other than the layer's are not folded");
	layers(0, 1, "8 KB");
	is_str(printed(0),
	       "forward layer 0 8 KB h.0.w needed by add of layer 1 on 2\nforward layer 1 8 KB h.1.w needed by add of layer 2 on 2\n",
	       "all lines are printed if requested");
	is_str(printed(1), "", "nothing is printed of no lines");
	return done();
}
