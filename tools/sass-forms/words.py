#!/usr/bin/env python3
"""Makes sass/tests/data/golden/words.txt: nvdisasm's text of surface atomics and queries, of the matrix products
of a warpgroup, and of uniform additions of 64 bits.

    tools/sass-forms/words.py --ptxas PATH... --nvdisasm PATH [--all FILE]

No PTX instruction compiles to SUATOM or SUQUERY: their words are put together field by field, every value of
every field that nvdisasm gives a name, for all architectures. The products of a warpgroup are compiled from PTX
for sm_90a; the file has every shape and every combination of modifiers once. Lines and --all as for sass-forms.py.
"""
import argparse
import importlib
import pathlib
import re
import subprocess
import sys

import toolchain
import wgmma

forms = importlib.import_module("sass-forms")

ATOMICS = {0x394: 0, 0x593: 0, 0x793: 0, 0xF93: 1, 0x396: 0, 0x595: 0, 0x795: 0, 0xF95: 1}
"""Operation codes of SUATOM with bit 91."""
QUERIES = {0x7B3: 0, 0x9B3: 0, 0xBB3: 0, 0xFB3: 1}
EXCHANGES = (0x396, 0x595, 0x795, 0xF95)
OPERATION = (87, 4)
FIELDS = [(59, 2), (61, 3), (72, 1), (73, 3), (77, 4), (81, 3), (84, 3), OPERATION]
UNKNOWN = re.compile(r"INVALID|\?\?\?")


def bytes_of(word):
    return word.to_bytes(16, "little")


def readable(nvdisasm, sm, words):
    """Words with their texts; nvdisasm ends at the first that is no instruction, and those are left out."""
    try:
        return list(zip(words, forms.disassemble(nvdisasm, sm, words)))
    except (subprocess.CalledProcessError, SystemExit):
        half = len(words) // 2
        return readable(nvdisasm, sm, words[:half]) + readable(nvdisasm, sm, words[half:]) if half else []


def surface_words(nvdisasm, sm):
    """Words that nvdisasm reads: from each base, every value of each field."""
    found = []
    for op, high in {**ATOMICS, **QUERIES}.items():
        base = op | 7 << 12 | 10 << 16 | 4 << 24 | 7 << 81 | high << 91
        base |= 6 << 32 | 1 << 84 if op in ATOMICS else 0
        base |= 8 << 64 if op >> 9 in (1, 4) else 0
        fields = FIELDS if op in ATOMICS else [(61, 3), (72, 1), (81, 3)]
        if op in EXCHANGES:
            fields = [field for field in fields if field != OPERATION]
        words = [base]
        for low, width in fields:
            words += [base & ~(((1 << width) - 1) << low) | value << low for value in range(1 << width)]
        if op >> 9 in (2, 5):
            words += [base | 0x2A5C << 40 | 3 << 54]
        elif op >> 9 == 3:
            words += [base | 0x15 << 40 | 0xA7 << 46 | 3 << 54]
        elif op >> 9 == 7:
            words += [base | 9 << 40 | 0x33 << 46]
        words += [base | 0xFF << 16, base | 0xFF << 24, base & ~(7 << 12) | 2 << 12, base | 1 << 15]
        found += dict.fromkeys(words)
    texts = readable(nvdisasm, sm, [bytes_of(word) for word in found])
    return [word for word, text in texts if not UNKNOWN.search(text)]


def uniform_additions():
    """UIADD3.64 with each sign, carry in, and predicate: ptxas writes few of them."""
    base = 0x297 | 7 << 12 | 40 << 16 | 32 << 24 | 4 << 32 | 6 << 64 | 15 << 77 | 7 << 81 | 7 << 84 | 31 << 87
    words = [base | bit for bit in (0, 1 << 63, 1 << 72, 1 << 75, 1 << 74)]
    words += [base & ~(7 << 81) | 2 << 81, base & ~(7 << 84) | 3 << 84, base & ~(63 << 64) | 63 << 64]
    return [bytes_of(word) for word in words]


def register_counts():
    """USETMAXREG: both operations, with each bit of the count, and with guards and predicates."""
    releases = 0x9C8 | 7 << 12 | 40 << 32 | 0b101 << 72 | 7 << 81 | 1 << 91
    claims = 0x9C8 | 7 << 12 | 232 << 32 | 0b110 << 72 | 1 << 91
    words = [base ^ 1 << bit for base in (releases, claims) for bit in range(32, 42)]
    words += [releases, claims, releases ^ 3 << 12, claims ^ 1 << 15, claims | 5 << 81, claims | 7 << 81]
    return [bytes_of(word) for word in words]


def products(ptxas, nvdisasm):
    """The matrix products of a warpgroup, and the waits for them: words with their texts."""
    words = {}
    for kernels in wgmma.modules():
        for tool in ptxas:
            if cubin := toolchain.assemble_kernels(tool, wgmma.HEADER, kernels, "90a", ["-O3"]):
                code = toolchain.code_of(cubin)
                words.update({code[at:at + 16]: None for at in range(0, len(code), 16)})
    words = list(words)
    texts = forms.disassemble(nvdisasm, 90, words)
    return {word: text for word, text in zip(words, texts) if re.search(r"GMMA|WARPGROUP", text)}


def few(texts):
    """Every shape, and every combination of modifiers and operands, once."""
    kept = {}
    for word, text in texts.items():
        mnemonic = text.split()[1 if text.startswith("@") else 0]
        kept.setdefault(mnemonic, word)
        kept.setdefault(forms.form(word, re.sub(r"64x\d+", "64xN", text)), word)
    return list(dict.fromkeys(kept.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True, nargs="+")
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--all", type=pathlib.Path)
    options = parser.parse_args()
    short, every = [], []
    for sm in forms.ARCHS:
        words = surface_words(options.nvdisasm, sm)
        chosen, all_ = list(words), list(words)
        if sm == 90:
            texts = products(options.ptxas, options.nvdisasm)
            chosen += few(texts)
            all_ += texts
            chosen += uniform_additions() + register_counts()
            all_ += uniform_additions() + register_counts()
        print(f"sm_{sm}: {len(all_)} words, {len(chosen)} in the file", file=sys.stderr)
        short += forms.lines(options.nvdisasm, sm, chosen)
        every += forms.lines(options.nvdisasm, sm, all_) if options.all else []
    (forms.DATA / "golden" / "words.txt").write_text("".join(short))
    if options.all:
        options.all.write_text("".join(every))


if __name__ == "__main__":
    main()
