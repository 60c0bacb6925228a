#!/usr/bin/env python3
"""Writes the table of requests that nvdiag decodes with (diag/data/ioctls.txt) from the fact tables the tests
compare it with.

usage: tools/diag-tables.py      (from the root of the repository)
"""

import json
from pathlib import Path


def tegra_fields(structs, fields, prefix=""):
    """The integers of a struct: name, offset, bytes of one, how many, s/u, and bit and width of a bit-field."""
    for field in fields:
        name = prefix + (field["name"] or "")
        inside = prefix if field["name"] is None else name + "."
        if "fields" in field:
            yield from tegra_fields(structs, field["fields"], inside)
        elif field["kind"] == "struct":
            inner = structs[field["type"].removeprefix("struct ")]
            count = field.get("array", [1])[0]
            for i in range(count):
                index = f"{name}[{i}]." if "array" in field else inside
                for leaf in tegra_fields(structs, inner["fields"], index):
                    yield (leaf[0], leaf[1] + field["offset"] + i * inner["size"], *leaf[2:])
        else:
            one = field.get("elem_size", field["size"])
            if "bits" in field:
                one = (field["bit_offset"] + field["bits"] + 7) // 8
            count = 1 if "bits" in field else field["size"] // one
            sign = "s" if field.get("signed") else "u"
            bits = f":{field['bit_offset']}:{field['bits']}" if "bits" in field else ""
            yield name, field["offset"], one, count, sign, bits


def struct(name, size, fields):
    words = [f"struct {name} {size}"]
    for field, offset, one, count, sign, bits in fields:
        words.append(f"{field}:{offset}:{sign}{one}" + (f"*{count}" if count != 1 else "") + bits)
    return " ".join(words)


def ioctls():
    lines = [
        "# Requests of the GPU drivers, by tools/diag-tables.py: structs, then what takes which.",
        "# struct NAME BYTES FIELD:offset:u|s BYTES[*count][:bit:bits] ...",
        "# nvgpu|escape|uvm|control|class NUMBER NAME STRUCT; structs of one name are told apart by their size.",
    ]
    tegra = json.loads(Path("nvgpu-sys/tests/data/nvgpu-abi.json").read_text())
    for name, about in tegra["structs"].items():
        lines.append(struct(name, about["size"], tegra_fields(tegra["structs"], about["fields"])))
    desktop = json.loads(Path("rm-sys/tests/data/rm-abi.json").read_text())

    def desktop_struct(name, about):
        fields = [(f[0], f[1], f[4] if len(f) > 3 else f[2], f[3] if len(f) > 3 else 1, "u", "") for f in about["fields"]]
        return struct(name, about["size"], fields)

    for name, about in desktop["structs"].items():
        lines.append(desktop_struct(name, about))
    for name, variants in desktop["struct_variants"].items():
        sizes = {desktop["structs"][name]["size"]} if name in desktop["structs"] else set()
        for about in variants.values():
            if about and about["size"] not in sizes:
                sizes.add(about["size"])
                lines.append(desktop_struct(name, about))
    for name, about in tegra["ioctls"].items():
        arg = about["arg"] or "-"
        arg = arg.removeprefix("struct ") if arg.startswith("struct ") else {"-": "-", "int": "s4"}.get(arg, "u4")
        lines.append(f"nvgpu {about['request']:08x} {name} {arg}")
    for name, about in desktop["escapes"].items():
        lines.append(f"escape {about['nr']:x} {name.split('(')[0]} {about['params'] or '-'}")
    for name, about in desktop["uvm_ioctls"].items():
        lines.append(f"uvm {about['nr']:x} {name} {about['params'] or '-'}")
    for name, about in desktop["controls"].items():
        lines.append(f"control {about['cmd']:x} {name} {about['params'] or '-'}")
    for name, about in desktop["classes"].items():
        lines.append(f"class {about['id']:x} {name} {about['alloc_params'] or '-'}")
    return "\n".join(lines) + "\n"


Path("diag/data/ioctls.txt").write_text(ioctls())
