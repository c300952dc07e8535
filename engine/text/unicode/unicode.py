#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_tables.c: canonical decompositions and combining classes, from Python's unicodedata.

Unicode's stability policy fixes both for every character that is assigned, so a newer Unicode only adds lines.
usage: unicode.py >unicode_tables.c, then clang-format
"""
import unicodedata as u

HANGUL = range(0xAC00, 0xD7A4)


def rows(items, per):
    for i in range(0, len(items), per):
        print("\t" + " ".join(items[i:i + per]))


def main():
    pairs = []
    for c in range(0x110000):
        text = u.decomposition(chr(c))
        if not text or text.startswith("<") or c in HANGUL:
            continue
        parts = [int(x, 16) for x in text.split()] + [0]
        pairs.append((c, parts[0], parts[1]))
    composed = [i for i, (c, a, b) in enumerate(pairs)
                if b and u.normalize("NFC", chr(a) + chr(b)) == chr(c)]
    composed.sort(key=lambda i: pairs[i][1:])
    classes = []
    for c in range(0x110000):
        k = u.combining(chr(c))
        if k and classes and classes[-1][1] == c - 1 and classes[-1][2] == k:
            classes[-1] = (classes[-1][0], c, k)
        elif k:
            classes.append((c, c, k))
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" * Written by engine/text/unicode/unicode.py, Unicode %s.  Not to be edited." % u.unidata_version)
    print(" */")
    print("#include <config.h>")
    print('#include "engine/text/unicode/unicode.h"')
    print("\n/* clang-format off */")
    print("const struct hd_decomposition hd_decompositions[] = {")
    rows(["{%d,%d,%d}," % p for p in pairs], 5)
    print("};")
    print("const int hd_ndecompositions = %d;" % len(pairs))
    print("const uint16_t hd_compositions[] = {")
    rows(["%d," % i for i in composed], 20)
    print("};")
    print("const int hd_ncompositions = %d;" % len(composed))
    print("const struct hd_combining hd_combining[] = {")
    rows(["{%d,%d,%d}," % c for c in classes], 5)
    print("};")
    print("const int hd_ncombining = %d;" % len(classes))
    print("/* clang-format on */")


main()
