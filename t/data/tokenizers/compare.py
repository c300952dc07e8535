#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares heddle's ids with those of Python's tokenizers on much text, for every kind, and the time of one thread of each.

usage: compare.py HEDDLE MB [--vocab N] [KIND...]; needs the Python package tokenizers.

The text: the files of this source tree and of the system's documentation, random words of many scripts, runs of blanks,
control characters, special tokens, bytes that are no UTF-8.  Prints TAP; exit status 0 if all ids are the same.
"""
import glob
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


def words(pick):
    low, high = pick.choice(RANGES)
    return " ".join("".join(chr(pick.randint(low, high)) for _ in range(pick.randint(1, 9))) for _ in range(pick.randint(1, 30)))


def pieces(size, seed):
    pick = random.Random(seed)
    sources = [open(n, "rb").read() for n in files()]
    mixed = train.mixed(seed)
    have = 0
    while have < size:
        what = pick.randrange(12)
        if what < 7:
            source = pick.choice(sources)
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


def main():
    heddle, size = sys.argv[1], int(float(sys.argv[2]) * 1e6)
    rest = sys.argv[3:]
    vocab = int(rest[1]) if rest and rest[0] == "--vocab" else 8000
    kinds = [k for k in rest if k in train.KINDS] or train.KINDS
    each = min(size, 4000000)
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        names = []
        for i in range((size + each - 1) // each):
            names.append(f"{tmp}/text-{i}")
            with open(names[-1], "wb") as f:
                f.writelines(pieces(each, i + 1))
        corpus = train.corpus() + [p.decode("utf-8", "replace") for p in pieces(min(size, 2000000), 0)]
        train.corpus = lambda: corpus
        for number, kind in enumerate(kinds):
            tokenizer = train.make(kind, vocab)
            folder = f"{tmp}/{kind}"
            os.mkdir(folder)
            tokenizer.save(folder + "/tokenizer.json")
            n, same, python, ours = 0, True, 0, 0
            for name in names:
                a, b, c, d = compare(heddle, tokenizer, folder, name)
                n, same, python, ours = n + a, same and b, python + c, ours + d
            failed += not same
            print("%s %d - %s: %d ids of %d MB; Python %.2f MB/s, heddle %.2f MB/s, %.2f times" % (
                "ok" if same else "not ok", number + 1, kind, n, size // 1000000, size / 1e6 / python, size / 1e6 / ours,
                python / ours), flush=True)
    print("1..%d" % len(kinds))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
