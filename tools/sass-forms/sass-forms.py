#!/usr/bin/env python3
"""Makes sass/tests/data/golden/forms.txt: nvdisasm's text of every operation in every operand form that the
sources in sass/tests/data/cuda/ and the texture and surface instructions of textures.py compile to.

    tools/sass-forms/sass-forms.py --nvrtc LIBNVRTC.so --include FOLDER... --ptxas PATH... --nvdisasm PATH [--all FILE]

The CUDA sources are compiled by NVRTC (12.6: ptxas of CUDA 12.6 reads no newer PTX) plain, with -lineinfo and with
-G, then by each ptxas, for sm_80, sm_86, sm_87, sm_89 and sm_90. --include: the folder of the CUDA headers (wheels
nvidia-cuda-runtime-cu12 and nvidia-cuda-nvcc-cu12).

A line is `sm word text`: the word in hexadecimal, disassembled at address 16 * i as the i-th line of its sm (branch
targets depend on it). Of the words that differ in numbers alone (registers, constants, addresses, scheduling) the
file has the first. --all writes every distinct word in the same format: `SASS_WORDS=FILE cargo test -p sass --test
it forms` compares them.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import textures
import toolchain

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "sass" / "tests" / "data"
ARCHS = (80, 86, 87, 89, 90)
VARIANTS = (((), ("-O3",)), (("-lineinfo",), ("-lineinfo", "-O1")), (("-G",), ("-g", "-O0")))


def cubins(nvrtc, ptxas, sm):
    for source in sorted((DATA / "cuda").glob("*.cu")):
        for compiler, assembler in VARIANTS:
            ptx = nvrtc.ptx(source, sm, compiler)
            for tool in ptxas:
                cubin, complaints = toolchain.assemble(tool, ptx, sm, assembler)
                if cubin is None:
                    raise SystemExit(f"{source} for sm_{sm}: {complaints}")
                yield cubin
    for _, head, instructions in textures.modules(sm):
        kernels = [textures.kernel(number, line, setup) for number, (setup, line) in enumerate(instructions)]
        for tool in ptxas:
            if cubin := toolchain.assemble_kernels(tool, head, kernels, sm, ["-O3"]):
                yield cubin


def disassemble(nvdisasm, sm, words):
    with tempfile.NamedTemporaryFile(suffix=".bin") as raw:
        raw.write(b"".join(words))
        raw.flush()
        command = [nvdisasm, "-ndf", "-c", "-b", f"SM{sm}", raw.name]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(.*;)", out, re.M)
    if len(rows) != len(words):
        raise SystemExit(f"nvdisasm printed {len(rows)} lines for {len(words)} words of sm_{sm}")
    return [" ".join(re.sub(r"\(\*.*?\*\)", "", text).rstrip("; ").split()) for text in rows]


def form(word, text):
    """What is left of a text without its numbers."""
    text = re.sub(r"\b(U?[RPB])\d+\b", r"\1", text)
    text = re.sub(r"-?0x[0-9a-f]+", "N", text)
    text = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?(?![A-Za-z0-9_.])", "N", text)
    return int.from_bytes(word, "little") & 0xFFF, text


def lines(nvdisasm, sm, words):
    texts = disassemble(nvdisasm, sm, words)
    return [f"{sm} {int.from_bytes(word, 'little'):032x} {text}\n" for word, text in zip(words, texts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", required=True)
    parser.add_argument("--include", required=True, nargs="+")
    parser.add_argument("--ptxas", required=True, nargs="+")
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--all", type=pathlib.Path)
    options = parser.parse_args()
    nvrtc = toolchain.Nvrtc(options.nvrtc, options.include)
    few, every = [], []
    for sm in ARCHS:
        words, count = {}, 0
        for cubin in cubins(nvrtc, options.ptxas, sm):
            code = toolchain.code_of(cubin)
            count += len(code) // 16
            words.update({code[at:at + 16]: None for at in range(0, len(code), 16)})
        forms = {}
        for word, text in zip(words, disassemble(options.nvdisasm, sm, list(words))):
            forms.setdefault(form(word, text), word)
        print(f"sm_{sm}: {count} instructions, {len(words)} words, {len(forms)} forms", file=sys.stderr)
        few += lines(options.nvdisasm, sm, sorted(forms.values(), key=lambda word: int.from_bytes(word, "little") & 0xFFF))
        every += lines(options.nvdisasm, sm, list(words)) if options.all else []
    (DATA / "golden" / "forms.txt").write_text("".join(few))
    if options.all:
        options.all.write_text("".join(every))


if __name__ == "__main__":
    main()
