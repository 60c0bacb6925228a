#!/usr/bin/env python3
"""Requests, structs and constants of nvgpu and nvmap in each release of Jetson Linux, as one table.

    abi-releases.py NVGPU NV_OOT [NAME=REPOSITORY:COMMIT ...] > nvgpu-sys/tests/data/releases.json
    abi-releases.py --selftest

NVGPU and NV_OOT are clones (bare or not) of OE4T/linux-nvgpu and OE4T/linux-nv-oot. Their branches name the
releases: `l4t/l4t-r36.4`, `l4t/l4t-35.5.0` and so on, from r35 on, and `rel-36`. NAME=REPOSITORY:COMMIT adds a
release from a repository that has both drivers, in the folders `nvgpu` and `nvidia-oot`.

A compiler (`CC`, else `cc`) lays out what the headers declare: for each release a generated program prints
sizes, offsets and numbers. Names and numbers go into the table, no text of the headers. Sizes are those of a
64-bit little-endian machine with the alignment of C, as aarch64 and x86-64 have it.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = "include/uapi/linux"
BRANCH = re.compile(r"^(?:l4t/l4t-r?(3[5-9]\.[0-9.]*[0-9])(?:\.ga)?|(rel-3[6-9]))$")
TOKEN = re.compile(r"[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|\d+|\S")
# The kernel's request macros and marks, which the headers expect.
PRELUDE = """
#include <linux/ioctl.h>
#include <linux/types.h>
#ifndef __packed
#define __packed __attribute__((packed))
#endif
#include "nvgpu.h"
#if __has_include("nvmap.h")
#include "nvmap.h"
#include "nvmap-numbers.h"
#endif
"""
# `bits` prints a bit-field's byte and bit: the first bit that is set when the field alone is all ones.
PRINTING = """
#include <stddef.h>
#include <stdio.h>
#include <string.h>
static void bits(const char *name, const unsigned char *bytes, int size) {
    int first = 0, count = 0;
    for (int bit = size * 8 - 1; bit >= 0; bit--)
        if (bytes[bit / 8] >> bit % 8 & 1) { first = bit; count++; }
    printf("F %s %d 0 %d %d\\n", name, first / 8, first % 8, count);
}
"""


class Repository:
    """A clone, read without a work tree."""

    def __init__(self, path):
        path = Path(path)
        self.directory = path / ".git" if (path / ".git").exists() else path

    def git(self, *arguments):
        done = subprocess.run(["git", f"--git-dir={self.directory}", *arguments], capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"abi-releases: git {' '.join(arguments)} in {self.directory}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def branches(self):
        """Release name to commit, of the branches that are releases."""
        found = {}
        for line in self.git("branch", "-a", "--format=%(refname:lstrip=2) %(objectname)").splitlines():
            name, commit = line.split()
            match = BRANCH.match(name.removeprefix("origin/"))
            if match:
                found["r" + match[1] if match[1] else match[2]] = commit
        return found

    def write(self, commit, folder, into, pattern):
        """Writes a commit's headers into a folder."""
        for path in self.git("ls-tree", "--name-only", commit, folder + "/").splitlines():
            if re.search(pattern, path):
                (into / Path(path).name).write_text(self.git("show", f"{commit}:{path}"))


def members(tokens, prefix=""):
    """The fields of a struct's body: path, and whether it is a bit-field. Anonymous members add no name."""
    at = 0
    while at < len(tokens):
        if tokens[at] in ("struct", "union") and "{" in tokens[at + 1 : at + 3]:
            opened = at + 1 + tokens[at + 1 : at + 3].index("{")
            closed = closing(tokens, opened)
            names = tokens[closed + 1 : tokens.index(";", closed)]
            # Attributes and dimensions stand beside the name.
            name = next((n for n in names if re.match(r"[A-Za-z]", n)), None)
            yield from members(tokens[opened + 1 : closed], f"{prefix}{name}." if name else prefix)
            at = tokens.index(";", closed) + 1
            continue
        end = tokens.index(";", at)
        declaration, bit_field = tokens[at:end], ":" in tokens[at:end]
        for part in " ".join(declaration).split(" , "):
            words = re.sub(r"\[[^]]*\]|:.*", "", part).split()
            if words:
                yield prefix + words[-1], bit_field
        at = end + 1


def closing(tokens, at):
    """Where the brace at `at` is closed."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i] == "{") - (tokens[i] == "}")
        if depth == 0:
            return i
    sys.exit("abi-releases: a header has an open brace")


def structs(text):
    """Each struct that the preprocessed headers declare, with its fields."""
    tokens = TOKEN.findall(re.sub(r'"(?:\\.|[^"\\])*"', '""', text))
    for at, token in enumerate(tokens[:-2]):
        if token == "struct" and tokens[at + 2] == "{" and re.match(r"[a-z]\w+$", tokens[at + 1]):
            yield tokens[at + 1], list(members(tokens[at + 3 : closing(tokens, at + 2)]))


def compiler(folder, *arguments, source):
    command = [os.environ.get("CC", "cc"), f"-I{folder}", "-xc", *arguments, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def lay_out(folder):
    """What a compiler makes of the headers in a folder: requests, structs, constants."""
    status, text, error = compiler(folder, "-E", "-P", source=PRELUDE)
    if status:
        sys.exit(f"abi-releases: {error}")
    _, macros, _ = compiler(folder, "-E", "-dM", source=PRELUDE)
    names = sorted(set(re.findall(r"^#define (NV\w*_\w+) +\S", macros, re.MULTILINE)))
    bodies = dict(re.findall(r"^#define (\w+) +(.*)$", macros, re.MULTILINE))
    requests = {name: bodies[name] for name in names if re.match(r"_IO[RW]*\(", bodies[name])}
    numbers = [n for n in names if n not in requests]
    enums = " ".join(re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text))
    numbers += re.findall(r"\bNV\w*_\w+", enums)
    lines = []
    for name, body in requests.items():
        argument = re.match(r"_IO[RW]*\([^,]*,[^,]*(?:,(.*))?\)$", body)[1]
        argument = (argument or "none").replace("struct", "").strip().replace(" ", "_")
        lines.append(f'printf("R {name} %u {argument}\\n", (unsigned)({name}));')
    declared = dict(structs(text))
    for name, fields in sorted(declared.items()):
        lines.append(f'printf("S {name} %zu\\n", sizeof(struct {name}));')
        for path, bit_field in fields:
            if bit_field:
                lines.append(
                    f"{{ struct {name} s; memset(&s, 0, sizeof s); s.{path} = ~0ull;"
                    f' bits("{path}", (unsigned char *)&s, sizeof s); }}'
                )
            else:
                at = f"offsetof(struct {name}, {path}), sizeof(((struct {name} *)0)->{path})"
                lines.append(f'printf("F {path} %zu %zu\\n", {at});')
    # A macro that is no number (a name of a type, a string) is left out: it does not compile as one.
    for name in numbers:
        line = f'_Static_assert((long long)({name}) == (long long)({name}), "");'
        if not compiler(folder, "-fsyntax-only", source=PRELUDE + line)[0]:
            value = f'({name}) < 0 ? "C {name} %lld\\n" : "C {name} %llu\\n", (long long)({name})'
            lines.append(f"printf({value});")
    with tempfile.TemporaryDirectory() as scratch:
        program = f"{scratch}/print"
        source = PRELUDE + PRINTING + "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
        status, _, error = compiler(folder, "-Wno-overflow", "-o", program, source=source)
        if status:
            sys.exit(f"abi-releases: {error}")
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return parse(printed)


def parse(printed):
    """The lines of the generated program, as one entry for each name."""
    found = {"requests": {}, "structs": {}, "constants": {}}
    fields = {}
    for line in printed.splitlines():
        kind, name, *values = line.split()
        if kind == "R":
            found["requests"][name] = {"number": int(values[0]), "argument": values[1]}
        elif kind == "C":
            found["constants"][name] = {"value": int(values[0])}
        elif kind == "S":
            fields = {}
            found["structs"][name] = {"size": int(values[0]), "fields": fields}
        else:
            fields[name] = [int(v) for v in values]
    return found


def merge(releases):
    """Each entry once, with the releases that have it so; entries of one name in the order of the releases."""
    sets = {}
    merged = {}
    for kind in ("requests", "structs", "constants"):
        variants = {}
        for release, found in releases.items():
            for name, entry in found[kind].items():
                variants.setdefault(name, {}).setdefault(json.dumps(entry), []).append(release)
        merged[kind] = {}
        for name in sorted(variants):
            merged[kind][name] = []
            for entry, having in variants[name].items():
                label = sets.setdefault(tuple(having), f"{having[0]}..{having[-1]}, {len(having)}")
                merged[kind][name].append({"in": label, **json.loads(entry)})
    return {label: list(having) for having, label in sets.items()}, merged


def order(release):
    """A sort key: releases in order of their numbers, the head of a branch after its releases."""
    numbers = [int(n) for n in re.findall(r"\d+", release)]
    return (numbers[0], release.startswith("rel"), numbers)


def write(about, sources, sets, merged):
    """One entry a line, so that a change of one shows as one line."""
    compact = lambda value: json.dumps(value, separators=(",", ":"))
    out = ["{", f' "about": {json.dumps(about)},', ' "sources": {']
    out.append(",\n".join(f"  {json.dumps(r)}: {json.dumps(s)}" for r, s in sources.items()) + "\n },")
    out.append(' "sets": {')
    out.append(",\n".join(f"  {json.dumps(label)}: {compact(having)}" for label, having in sets.items()) + "\n },")
    for i, (kind, entries) in enumerate(merged.items()):
        lines = ",\n".join(f"  {json.dumps(name)}: {compact(variants)}" for name, variants in entries.items())
        out.append(f' "{kind}": {{\n{lines}\n }}' + ("," if i + 1 < len(merged) else ""))
    print("\n".join(out) + "\n}")


def selftest():
    """The parser and the layout, on a header with every form that the drivers' headers have."""
    header = """
#define NVGPU_MAGIC 'G'
#define NVGPU_NAME_OF_A_TYPE struct nvgpu_a
#define NVGPU_ONE (1 << 1)
#define NVGPU_SET _IOWR(NVGPU_MAGIC, 2, struct nvgpu_a)
#define NVGPU_GO _IO(NVGPU_MAGIC, 3)
enum { NVGPU_NONE = 5, NVGPU_NEXT };
struct nvgpu_a {
    __u32 first; /* a } in a comment */
    union { __u64 wide; struct { __u32 low, high; } parts; };
    __u8 flags:3, more:2;
    __u16 list[2][3];
    struct nvgpu_b *other;
} __packed;
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nvgpu.h").write_text(header)
        found = lay_out(folder)
    assert found["requests"] == {
        "NVGPU_GO": {"number": 0x4703, "argument": "none"},
        "NVGPU_SET": {"number": 0xC0000000 | 33 << 16 | 0x4702, "argument": "nvgpu_a"},
    }, found["requests"]
    fields = {"first": [0, 4], "wide": [4, 8], "parts.low": [4, 4], "parts.high": [8, 4]}
    fields |= {"flags": [12, 0, 0, 3], "more": [12, 0, 3, 2], "list": [13, 12], "other": [25, 8]}
    assert found["structs"] == {"nvgpu_a": {"size": 33, "fields": fields}}, found["structs"]
    constants = {"NVGPU_MAGIC": 71, "NVGPU_ONE": 2, "NVGPU_NONE": 5, "NVGPU_NEXT": 6}
    assert {name: entry["value"] for name, entry in found["constants"].items()} == constants, found["constants"]
    other = {**found, "constants": {"NVGPU_ONE": {"value": 3}}}
    sets, merged = merge({"r1": found, "r2": other, "r3": found})
    assert merged["constants"]["NVGPU_ONE"] == [{"in": "r1..r3, 2", "value": 2}, {"in": "r2..r2, 1", "value": 3}]
    assert sets["r1..r3, 2"] == ["r1", "r3"]
    assert sorted(["rel-36", "r36.4.3", "r36.4", "r35.6.0"], key=order) == ["r35.6.0", "r36.4", "r36.4.3", "rel-36"]


def main():
    arguments = sys.argv[1:]
    if arguments == ["--selftest"]:
        return selftest()
    if len(arguments) < 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    nvgpu, nv_oot = Repository(arguments[0]), Repository(arguments[1])
    with_nvmap = nv_oot.branches()
    places = {}
    for release, commit in nvgpu.branches().items():
        nvmap = with_nvmap.get(release)
        places[release] = (nvgpu, commit, HEADERS, (nv_oot, nvmap, HEADERS) if nvmap else None)
    for also in arguments[2:]:
        release, place = also.split("=", 1)
        path, commit = place.rsplit(":", 1)
        repository = Repository(path)
        commit = repository.git("rev-parse", commit).strip()
        places[release] = (repository, commit, f"nvgpu/{HEADERS}", (repository, commit, f"nvidia-oot/{HEADERS}"))
    found, sources, known = {}, {}, {}
    for release in sorted(places, key=order):
        repository, commit, folder, nvmap = places[release]
        sources[release] = {"nvgpu": commit[:12], "nvmap": nvmap[1][:12] if nvmap else None}
        with tempfile.TemporaryDirectory() as headers:
            repository.write(commit, folder, Path(headers), r"/nvgpu[^/]*\.h$")
            if nvmap:
                nvmap[0].write(*nvmap[1:], Path(headers), r"/nvmap\.h$")
                # Heaps and cache modes are in the kernel's own header, which does not compile outside it.
                kernel = nvmap[0].git("show", f"{nvmap[1]}:{nvmap[2].replace('/uapi', '')}/nvmap.h")
                numbers = re.findall(r"^#define NVMAP_H(?:EAP|ANDLE)_.*$", kernel, re.MULTILINE)
                Path(headers, "nvmap-numbers.h").write_text("\n".join(numbers) + "\n")
            # Releases with the same headers are laid out once.
            texts = tuple(sorted((path.name, path.read_text()) for path in Path(headers).iterdir()))
            if texts not in known:
                known[texts] = lay_out(headers)
            found[release] = known[texts]
    sets, merged = merge(found)
    about = (
        "Written by tools/abi-releases.py; not edited by hand. Sources: commits of OE4T/linux-nvgpu (nvgpu) and "
        "OE4T/linux-nv-oot (nvmap), branch l4t/l4t-NAME; r36.4.3: woosy/nvgpu-jetson-linux-36.4.3. A field is "
        "[offset, size], a bit-field [byte, 0, bit, bits], in bytes. nvmap null: its header is in another repository."
    )
    write(about, sources, sets, merged)


if __name__ == "__main__":
    main()
