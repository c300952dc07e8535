/* SPDX-License-Identifier: Apache-2.0
 * Templates of new-plugin, except the source: INI, Makefile, test.
 */
#include <config.h>
#include "engine/kit/templates.h"

/* clang-format off */
const char hd_kit_ini[] =
	"; @COMMENT@\n"
	"[model]\n"
	"family = gpt2\n"
	"layers = 4\n"
	"embed = 64\n"
	"heads = 4\n"
	"\n"
	"[data]\n"
	"train = corpus.txt\t; numbers, which the Makefile writes: put your own text here\n"
	"\n"
	"[train]\n"
	"seq = 64\n"
	"global_batch = 16\n"
	"micro_batch = 2\n"
	"steps = 50\n"
	"lr = 3e-3\n"
	"@OPTIMIZER@"
	"\n"
	"@SECTION@\n";

const char hd_kit_makefile[] =
	"# Builds @NAME@.so with the headers of the Heddle that pkg-config finds (PKG_CONFIG_PATH names its lib/pkgconfig, or the folder it\n"
	"# was built in), and links with nothing of it.  HEDDLE is the program.\n"
	"HEDDLE = heddle\n"
	"CC = cc\n"
	"CFLAGS = -O2 -Wall -Wextra\n"
	"HEDDLE_CFLAGS := $(shell pkg-config --cflags heddle)\n"
	"\n"
	"all: @NAME@.so corpus.txt\n"
	"\n"
	"@NAME@.so: @NAME@.c\n"
	"\t$(CC) -std=gnu11 -fPIC -shared -fvisibility=hidden -Wl,-z,defs $(HEDDLE_CFLAGS) $(CFLAGS) -o $@ @NAME@.c -lm\n"
	"\n"
	"corpus.txt:\n"
	"\tseq 3000 > $@\n"
	"\n"
	"test: all\n"
	"\tHEDDLE='$(HEDDLE)' ./test.sh\n"
	"\n"
	"clean:\n"
	"\trm -f @NAME@.so\n"
	"\n"
	".PHONY: all test clean\n";

const char hd_kit_test[] =
	"#!/bin/sh\n"
	"# Checks that @NAME@ trains the same model as one rank, in many small layouts and in that of @NAME@.ini.  `make test' runs it.\n"
	"set -e\n"
	"heddle=${HEDDLE:-heddle}\n"
	"\"$heddle\" check @NAME@.ini --ranks @RANKS@\n"
	"\"$heddle\" conform ./@NAME@.so\n"
	"@AGAINST@\"$heddle\" check @NAME@.ini --ranks @RANKS@ --against-one-rank\n";
