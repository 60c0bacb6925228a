#!/usr/bin/env python3
"""Makes sass/tests/data/golden/registers.json.gz: what each word of the PTX corpus reads and writes, from the life
ranges that nvdisasm prints.

    tools/sass-registers.py --ptxas PATH --nvdisasm PATH

Both of CUDA 13 or later: nvdisasm prints life ranges only of the ELF files that ptxas writes from then on. A row is
{"sm", "word": [hex], "text", "reads", "writes"}; registers that are read are marked `v` in the listing, registers that
are written `^`, both `x`.
"""
import argparse
import gzip
import json
import pathlib
import re
import subprocess
import tempfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "sass" / "tests" / "data"
FILES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}


def columns(header):
    """Which register each column of a listing is: the header writes its number downwards."""
    names = [name.strip() for name in header[0].split("|")[1:-1]]
    last = header[-1]
    bounds = [i for i, char in enumerate(last) if char == "|"]
    registers = {}
    for file, begin, end in zip(names, bounds, bounds[1:]):
        for i in range(last.index("#", begin) + 1, end):
            if last[i].isdigit():
                registers[i] = FILES[file] + "".join(line[i] for line in header[1:] if line[i].isdigit()).lstrip("0").zfill(1)
    return registers


def rows(listing, sm):
    header, first, registers = None, None, {}
    for line in listing.splitlines():
        if match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);?\s*/\* 0x([0-9a-f]{16}) \*/", line):
            first = (" ".join(match[1].rstrip("; ").split()), match[2])
        at = line.find(" // ")
        if at < 0:
            continue
        left, right = line[:at], line[at + 4:]
        if right.startswith("+"):
            if header and "GPR" in header[0] and "#" in header[-1]:
                registers, header = columns(header), None
            else:
                header = []
        elif header is not None:
            header.append(right)
        elif first and (match := re.match(r"\s*/\* 0x([0-9a-f]{16}) \*/", left)):
            marked = lambda marks: {name for i, name in registers.items() if right[i] in marks}
            yield (sm, match[1] + first[1], first[0]), marked("vx"), marked("^x")
            first = None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--nvdisasm", required=True)
    tools = parser.parse_args()
    words = {}
    with tempfile.TemporaryDirectory() as scratch:
        for source in sorted((DATA / "ptx").glob("*.ptx")):
            for sm in (87, 90):
                cubin = pathlib.Path(scratch) / "k.cubin"
                subprocess.run([tools.ptxas, "-O3", f"-arch=sm_{sm}", source, "-o", cubin], check=True)
                command = [tools.nvdisasm, "-plr", "-lrm", "narrow", "-hex", "-c", cubin]
                listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                for key, reads, writes in rows(listing, sm):
                    known = words.setdefault(key, (set(), set()))
                    known[0].update(reads)
                    known[1].update(writes)
    table = [{"sm": sm, "word": [word], "text": text, "reads": " ".join(sorted(reads)), "writes": " ".join(sorted(writes))}
             for (sm, word, text), (reads, writes) in words.items()]
    with gzip.GzipFile(DATA / "golden" / "registers.json.gz", "wb", mtime=0) as file:
        file.write(json.dumps(table).encode())
    print(len(table), "words")


if __name__ == "__main__":
    main()
