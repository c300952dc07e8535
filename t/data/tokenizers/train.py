#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small tokenizers of the tests, one of each kind, and records what Python's tokenizers makes of mixed.txt.

usage: train.py DIR [--vocab N]; needs the Python package tokenizers.  Writes DIR/KIND/tokenizer.json, DIR/mixed.txt and
DIR/KIND/ids: the ids of mixed.txt, a blank between them.  What is in this folder was written so, with the default size.
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
META = "\u2581"

PROSE = """The license of a program says what one may do with it; it's short, and we'll read it. They'd said so, hadn't they?
In 1871 the river rose 12,345.67 feet above its bed, or so "the old man" told us - twice.  Don't ask HOW'S that.
Der Wanderer über dem Nebelmeer sah nach Süden: fünf Brücken, schöne Häuser, ein Fluß. Élève, naïve, œuvre, São Paulo.
"""
CODE = """static int f(const char *s, size_t n)
{
\tfor (size_t i = 0; i < n && s[i] != '\\0'; i++)
\t\tif (s[i] == 0x7f || !strcmp(s + i, "end"))
\t\t\treturn -1;   /* not found */
\treturn (int)n;
}

def g(x):
    return {k: v ** 2 for k, v in x.items() if v >= 1e-5}  # squares

"""
OTHERS = """東京は日本の首都です。人口は約1400万人。中文的文本没有空格，但是有标点符号！
한국어 문장도 있습니다. 가각힣 ㄱㄴ
هذا نص باللغة العربية، يُكتب من اليمين إلى اليسار ١٢٣.
नमस्ते दुनिया, यह हिन्दी है। Привет, мир! Ёлка Ελληνικά γλώσσα שלום עולם ภาษาไทยไม่มีช่องว่าง
emoji: 😀👍🏽👩‍👩‍👧‍👦🇩🇪❤️ ½ ² ³ Ⅻ ④ ﬁ ſ ' ’s ꙮ 𝒳 𐍈
"""
MARKS = "e\u0301 \u0041\u030a \u1e9b\u0323 \u0061\u0315\u0300\u05ae\u0062 \u1100\u1161\u11a8 \u2126 \u212b \ufb1d \u0344 \u0958\n"
CONTROLS = "".join(map(chr, range(32))) + "\x7f\x80\x85\x9f\xa0\u1680\u180e\u2000\u200a\u200b\u200d\u2028\u2029\u202f\u3000\ufeff\ufffd\n"
BLANKS = "a" + " " * 70 + "b\n" + "\t" * 9 + "x  \n\n\n   \n \n" + "  " * 3 + "y \r\n\r\n z" + "\n" * 40 + "   end  \n"
SPECIALS = ("<|endoftext|>A <|endoftext|>  B<s>C</s> <unk> <0x41> <|im_start|>user\nhi<|im_end|>\n<mask> x<mask>y <end_of_turn>"
            " \u2581 \u2581\u2581 word\u2581word Ġ Ċ <word> a<word>b <word>\n")


def mixed(seed=7):
    """Text in which everything meets everything: pieces of the above, cut anywhere."""
    pick = random.Random(seed)
    pieces = [PROSE, CODE, OTHERS, MARKS, CONTROLS, BLANKS, SPECIALS]
    text = "".join(pieces)
    while len(text) < 5000:
        piece = pick.choice(pieces)
        a = pick.randrange(len(piece))
        text += piece[a:a + pick.randrange(1, 60)]
    return text


def corpus():
    return [PROSE * 3, CODE * 3, OTHERS, MARKS, BLANKS]


def byte_level(kind, vocab):
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif kind == "roberta":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif kind == "starcoder":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif kind == "falcon":
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    else:
        pattern = {"llama3": LLAMA3, "qwen": QWEN, "o200k": O200K}[kind]
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if kind == "qwen":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", AddedToken("<mask>", lstrip=True)])
    if kind == "gpt2":
        t.add_tokens([AddedToken("<word>", single_word=True), AddedToken("old man", normalized=True)])
    return t


def sentencepiece(kind, vocab):
    pieces = [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", META)
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + pieces)
    # Words as SentencePiece cuts them for training, so that tokens do not go over blanks.
    t.pre_tokenizer = pre_tokenizers.Split(Regex(META + "+"), "merged_with_next")
    t.train_from_iterator([PROSE * 3, CODE * 3, OTHERS[:40], BLANKS], trainer)
    o = json.loads(t.to_str())
    o["added_tokens"] = [a for a in o["added_tokens"] if not a["content"].startswith("<0x")]
    back = [{"type": "Replace", "pattern": {"String": META}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    if kind == "llama2":
        o["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": META}, {"type": "Replace", "pattern": {"String": " "}, "content": META}]}
        o["pre_tokenizer"] = None
        o["decoder"] = {"type": "Sequence", "decoders": back + [strip]}
    elif kind == "mistral":
        o["normalizer"] = None
        o["pre_tokenizer"] = {"type": "Metaspace", "replacement": META, "prepend_scheme": "first", "split": False}
        o["decoder"] = {"type": "Sequence", "decoders": back + [strip]}
    else:
        o["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False}
        o["decoder"] = {"type": "Sequence", "decoders": back}
    t = Tokenizer.from_str(json.dumps(o))
    if kind == "gemma":
        t.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(2, 6)]
                     + [AddedToken(META * n, normalized=False) for n in range(2, 6)])
        t.add_special_tokens(["<end_of_turn>"])
    return t


def characters(vocab):
    """Without bytes: what is unknown is <unk>; words end in a mark of their own, digits stand alone."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace(),
                                               pre_tokenizers.Digits(individual_digits=True)])
    t.train_from_iterator([PROSE, CODE], trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False))
    return t


def make(kind, vocab):
    if kind == "characters":
        return characters(vocab)
    return sentencepiece(kind, vocab) if kind in ("llama2", "mistral", "gemma") else byte_level(kind, vocab)


KINDS = ["gpt2", "roberta", "starcoder", "falcon", "llama3", "qwen", "o200k", "llama2", "mistral", "gemma", "characters"]


def main():
    out = sys.argv[1]
    vocab = int(sys.argv[3]) if len(sys.argv) > 3 else 450
    text = mixed()
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/mixed.txt", "w", encoding="utf-8", newline="") as f:
        f.write(text)
    for kind in KINDS:
        t = make(kind, vocab)
        os.makedirs(f"{out}/{kind}", exist_ok=True)
        with open(f"{out}/{kind}/tokenizer.json", "w", encoding="utf-8") as f:
            f.write(json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        ids = t.encode(text, add_special_tokens=False).ids
        with open(f"{out}/{kind}/ids", "w", encoding="ascii") as f:
            f.write(" ".join(map(str, ids)) + "\n")


if __name__ == "__main__":
    main()
