# SPDX-License-Identifier: Apache-2.0
# tokens.py VOCAB FOLDER - writes the data files that kept runs read: 1201 ids below VOCAB as a .bin of llm.c
# (ids-llmc.bin) and as Megatron's pair (ids.bin, ids.idx), in three documents; and text.txt.  Ids follow each other by a
# rule with noise, so that a model has something to learn in a few steps.
import struct
import sys

COUNT = 1201
WORDS = "the shuttle passes between the warp threads and the weft follows it row by row until there is cloth".split()


def numbers(x):
    while True:
        x = x * 16807 % 2147483647
        yield x


def ids(vocab):
    out, draw = [7], numbers(3)
    while len(out) < COUNT:
        noise = next(draw) % 10
        out.append((out[-1] * 5 + 11) % vocab if noise < 7 else next(draw) % vocab)
    return out


def write_llmc(path, tokens):
    head = [20240520, 1, len(tokens)] + [0] * 253
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *head) + struct.pack("<%dH" % len(tokens), *tokens))


def write_megatron(stem, tokens):
    lengths = [400, 1, len(tokens) - 401]
    places = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    with open(stem + ".bin", "wb") as f:
        f.write(struct.pack("<%dH" % len(tokens), *tokens))
    with open(stem + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        f.write(struct.pack("<3i", *lengths) + struct.pack("<3q", *places) + struct.pack("<4q", 0, 1, 2, 3))


def write_text(path):
    draw = numbers(5)
    with open(path, "w") as f:
        for i in range(400):
            f.write(WORDS[next(draw) % len(WORDS)] + ("\n" if i % 9 == 8 else " "))


if __name__ == "__main__":
    vocab, folder = int(sys.argv[1]), sys.argv[2]
    write_llmc(folder + "/ids-llmc.bin", ids(vocab))
    write_megatron(folder + "/ids", ids(vocab))
    write_text(folder + "/text.txt")
