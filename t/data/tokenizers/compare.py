#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares heddle's ids with those of Python's tokenizers on much text, for every kind, and the time of one thread of each.

usage: compare.py HEDDLE MB [--vocab N] [--log FILE] [KIND...]; needs the Python package tokenizers.

The text: the files of this source tree and of the system's documentation, random words of many scripts, runs of blanks,
control characters, special tokens, bytes that are no UTF-8.  Prints TAP; exit status 0 if all ids are the same.

One process, one MB of text at a time, one kind after the other.  With --log FILE each MB that was the same is recorded, with the
program, the tokenizer and the text it was compared for: what is recorded is not compared again, so that a run that was stopped
goes on, and 100 MB may be compared in parts, some kinds today, or 20 MB first.
"""
import argparse
import functools
import glob
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
try:
    import train  # noqa: E402
except ImportError:
    print("1..0 # SKIP no Python package tokenizers")
    sys.exit(0)

RANGES = [(0x20, 0x7e)] * 6 + [(0xc0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x620, 0x64a), (0x660, 0x669),
          (0x900, 0x97f), (0xe01, 0xe4e), (0x1100, 0x11ff), (0x3041, 0x30ff), (0x4e00, 0x9fa5), (0x4e00, 0x9fa5), (0xac00, 0xd7a3),
          (0x1f300, 0x1f6ff), (0x300, 0x36f), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x2100, 0x218b), (0xfb00, 0xfb4f)]


def files():
    names = []
    for pattern in ("engine/**/*.c", "doc/*.md", "t/*.sh", "kernels/**/*.c"):
        names += glob.glob(os.path.join(here, "../../..", pattern), recursive=True)
    names += glob.glob("/usr/share/doc/*/copyright") + glob.glob("/usr/share/perl/5*/**/*.p[ml]", recursive=True)
    return sorted(n for n in names if os.path.isfile(n))


@functools.lru_cache(maxsize=1)
def sources():
    return [open(n, "rb").read() for n in files()]


def words(pick):
    low, high = pick.choice(RANGES)
    return " ".join("".join(chr(pick.randint(low, high)) for _ in range(pick.randint(1, 9))) for _ in range(pick.randint(1, 30)))


def pieces(size, seed):
    pick = random.Random(seed)
    mixed = train.mixed(seed)
    have = 0
    while have < size:
        what = pick.randrange(12)
        if what < 7:
            source = pick.choice(sources())
            at = pick.randrange(max(1, len(source) - 3000))
            piece = source[at:at + 3000]
        elif what < 10:
            piece = words(pick).encode()
        elif what == 10:
            at = pick.randrange(len(mixed))
            piece = mixed[at:at + 400].encode()
        else:
            piece = pick.choice([b" ", b"\t", b"\n", b" \n", b"\r\n", b"\xe3\x80\x80"]) * pick.choice([1, 2, 3, 17, 300, 5000])
            piece += bytes(pick.randrange(256) for _ in range(9))
        have += len(piece)
        yield piece


def seconds_of_children():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def compare(heddle, tokenizer, folder, path):
    """-> ids, whether they are the same, seconds of Python and of heddle, which include reading and printing."""
    text = open(path, "rb").read().decode("utf-8", "replace")
    start = time.process_time()
    want = tokenizer.encode(text, add_special_tokens=False).ids
    python = time.process_time() - start
    before = seconds_of_children()
    out = subprocess.run([heddle, "tokenize", "--tokenizer", folder, "--ids", path], stdout=subprocess.PIPE, check=True).stdout
    ours = seconds_of_children() - before
    got = list(map(int, out.split()))
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        print("# %s: id %d of %d and %d: %r, Python %r" % (path, at, len(got), len(want),
              [tokenizer.id_to_token(i) for i in got[at - 3:at + 4]], [tokenizer.id_to_token(i) for i in want[at - 3:at + 4]]))
    return len(want), got == want, python, ours


PIECE = 1000000


class Log:
    """What was the same before: lines of key, ids, seconds of Python and of heddle."""

    def __init__(self, path):
        self.path, self.known = path, {}
        if path and os.path.exists(path):
            for line in open(path):
                key, ids, python, ours = line.split()
                self.known[key] = int(ids), float(python), float(ours)

    def add(self, key, ids, python, ours):
        if self.path:
            with open(self.path, "a") as f:
                f.write("%s %d %.4f %.4f\n" % (key, ids, python, ours))


def compare_piece(heddle, tokenizer, folder, number, bytes, log):
    """-> as compare, of MB `number`."""
    path = folder + "/text"
    with open(path, "wb") as f:
        f.writelines(pieces(bytes, number + 1))
    h = hashlib.sha256()
    for name in (heddle, folder + "/tokenizer.json", path):
        h.update(hashlib.sha256(open(name, "rb").read()).digest())
    key = h.hexdigest()
    if key in log.known:
        n, python, ours = log.known[key]
        return n, True, python, ours
    n, same, python, ours = compare(heddle, tokenizer, folder, path)
    if same:
        log.add(key, n, python, ours)
    return n, same, python, ours


def compare_kind(heddle, kind, vocab, size, log):
    tokenizer = train.make(kind, vocab)
    n, same, python, ours = 0, True, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder + "/tokenizer.json")
        for number in range((size + PIECE - 1) // PIECE):
            a, b, c, d = compare_piece(heddle, tokenizer, folder, number, min(size, PIECE), log)
            n, same, python, ours = n + a, same and b, python + c, ours + d
    return n, same, python, ours


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("heddle")
    flags.add_argument("mb", type=float)
    flags.add_argument("--vocab", type=int, default=8000)
    flags.add_argument("--log")
    flags.add_argument("kinds", nargs="*", metavar="KIND")
    a = flags.parse_intermixed_args()
    kinds = a.kinds or train.KINDS
    if set(kinds) - set(train.KINDS):
        flags.error("known kinds: " + " ".join(train.KINDS))
    size, log, failed = int(a.mb * 1e6), Log(a.log), 0
    corpus = train.corpus() + [p.decode("utf-8", "replace") for p in pieces(2000000 if size >= PIECE else size, 0)]
    train.corpus = lambda: corpus
    for number, kind in enumerate(kinds):
        n, same, python, ours = compare_kind(a.heddle, kind, a.vocab, size, log)
        failed += not same
        print("%s %d - %s: %d ids of %g MB; Python %.2f MB/s, heddle %.2f MB/s, %.2f times" % (
            "ok" if same else "not ok", number + 1, kind, n, size / 1e6, size / 1e6 / python, size / 1e6 / ours,
            python / ours), flush=True)
    print("1..%d" % len(kinds))
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print("# at most %.0f MB of memory a process" % (peak / 1e3))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
