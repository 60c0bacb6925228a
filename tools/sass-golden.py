#!/usr/bin/env python3
"""Makes the oracle data of the sass crate's tests: cubins of the PTX corpus, and nvdisasm's listing of every cubin.

    tools/sass-golden.py [--compile] [--ptxas PATH] [--nvdisasm PATH]

--compile    rebuilds sass/tests/data/cubin/ from sass/tests/data/ptx/ for sm_87 and sm_90, with a manifest,
             golden/variants.json.gz: the distinct words that other compiler options make of the same sources, and
             golden/generations.json.gz: the words that sm_80, sm_86 and sm_89 have and sm_87 has not.
Without it   only two listings in sass/tests/data/golden/ are rewritten: corpus.json.gz for the corpus cubins,
             repository.json.gz for every other *.cubin of the work tree.
The tools are taken from the options, then from PTXAS and NVDISASM, then from PATH.

A listing is {"nvdisasm": version, "cubins": [{"path", "sm", "sha256", "code": [[hex word, text], ...]}, ...]}: the executable
sections one after another, entry i at address 16 * i, text with blanks squeezed and the final `;` removed.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "sass" / "tests" / "data"
ARCHS = (87, 90)
GENERATIONS = (80, 86, 89)
FLAGS = ["-O3"]
VARIANTS = [["-O0"], ["-O1"], ["-O2"], ["-O3", "-maxrregcount", "24"], ["-O3", "--def-load-cache", "cv"], ["-g", "-O0"]]


def tool(option, variable, name):
    path = option or os.environ.get(variable) or shutil.which(name)
    if not path:
        raise SystemExit(f"no {name}: name it with --{name}, {variable} or PATH")
    return path


def version(path):
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([0-9.]+)", text).group(1)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def compile_corpus(ptxas):
    rows = []
    for source in sorted((DATA / "ptx").glob("*.ptx")):
        for sm in ARCHS:
            cubin = DATA / "cubin" / f"{source.stem}.sm_{sm}.cubin"
            command = [*FLAGS, f"-arch=sm_{sm}"]
            subprocess.run([ptxas, *command, source, "-o", cubin], check=True)
            rows.append({"cubin": cubin.name, "ptx": source.name, "ptx_sha256": sha256(source.read_bytes()),
                         "flags": command, "cubin_sha256": sha256(cubin.read_bytes())})
    manifest = {"ptxas": version(ptxas), "cubins": rows}
    (DATA / "cubin" / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def code_of(elf):
    """The architecture number and the executable sections' bytes of a 64-bit little-endian ELF file."""
    sm = struct.unpack_from("<I", elf, 0x30)[0] & 0xFF
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    code = b""
    for at in range(table, table + size * count, size):
        kind, flags = struct.unpack_from("<IQ", elf, at + 4)
        offset, length = struct.unpack_from("<QQ", elf, at + 24)
        if kind == 1 and flags & 4:
            code += elf[offset:offset + length]
    return sm, code


def squeeze(text):
    text = re.sub(r"\(\*.*?\*\)", "", text)
    return re.sub(r"\s+", " ", text).strip().rstrip(";").strip()


def listing(nvdisasm, sm, code):
    with tempfile.NamedTemporaryFile(suffix=".bin") as raw:
        raw.write(code)
        raw.flush()
        out = subprocess.run([nvdisasm, "-ndf", "-c", "-b", f"SM{sm}", raw.name], capture_output=True, text=True, check=True)
    rows = re.findall(r"^\s*/\*([0-9a-f]+)\*/\s+(.*;)", out.stdout, re.M)
    texts = {int(at, 16): squeeze(text) for at, text in rows}
    words = [code[at:at + 16] for at in range(0, len(code), 16)]
    return [[f"{int.from_bytes(word, 'little'):032x}", texts[16 * i]] for i, word in enumerate(words)]


def words_of(ptxas, sm, options):
    """The distinct words that these lists of options make of the sources, in the order of their first appearance."""
    words = {}
    for flags in options:
        for source in sorted((DATA / "ptx").glob("*.ptx")):
            with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
                command = [ptxas, *flags, f"-arch=sm_{sm}", source, "-o", cubin.name]
                if subprocess.run(command, capture_output=True).returncode != 0:
                    continue  # one source does not fit 24 registers, some do not exist for sm_80
                _, code = code_of(pathlib.Path(cubin.name).read_bytes())
            words.update({code[at:at + 16]: None for at in range(0, len(code), 16)})
    return words


def variants(ptxas, nvdisasm):
    """For each architecture, the distinct words of all variants put one after another."""
    rows = []
    for sm in ARCHS:
        code = b"".join(words_of(ptxas, sm, VARIANTS))
        rows.append({"path": f"variants of sm_{sm}", "sm": sm, "code": listing(nvdisasm, sm, code)})
    return {"nvdisasm": version(nvdisasm), "cubins": rows}


def generations(ptxas, nvdisasm):
    """For each other SM of the 8.x encoding, the distinct words that sm_87 does not have."""
    known, rows = words_of(ptxas, 87, [FLAGS, *VARIANTS]), []
    for sm in GENERATIONS:
        code = b"".join(word for word in words_of(ptxas, sm, [FLAGS, *VARIANTS]) if word not in known)
        rows.append({"path": f"words of sm_{sm} only", "sm": sm, "code": listing(nvdisasm, sm, code)})
    return {"nvdisasm": version(nvdisasm), "cubins": rows}


def golden(nvdisasm, cubins):
    rows = []
    for path in cubins:
        data = path.read_bytes()
        sm, code = code_of(data)
        if sm in ARCHS:
            rows.append({"path": str(path.relative_to(ROOT)), "sm": sm, "sha256": sha256(data), "code": listing(nvdisasm, sm, code)})
    return {"nvdisasm": version(nvdisasm), "cubins": rows}


def save(name, value):
    text = json.dumps(value, separators=(",", ":")).encode()
    with open(DATA / "golden" / name, "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as packed:
        packed.write(text)
    count = sum(len(row["code"]) for row in value["cubins"])
    print(f"{name}: {len(value['cubins'])} cubins, {count} instructions")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--ptxas")
    parser.add_argument("--nvdisasm")
    options = parser.parse_args()
    nvdisasm = tool(options.nvdisasm, "NVDISASM", "nvdisasm")
    if options.compile:
        ptxas = tool(options.ptxas, "PTXAS", "ptxas")
        compile_corpus(ptxas)
        save("variants.json.gz", variants(ptxas, nvdisasm))
        save("generations.json.gz", generations(ptxas, nvdisasm))
    corpus = sorted((DATA / "cubin").glob("*.cubin"))
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.cubin"], cwd=ROOT, capture_output=True, text=True, check=True)
    others = [ROOT / line for line in sorted(set(listed.stdout.split("\n"))) if line]
    save("corpus.json.gz", golden(nvdisasm, corpus))
    save("repository.json.gz", golden(nvdisasm, [path for path in others if path.exists() and path not in corpus]))


if __name__ == "__main__":
    main()
