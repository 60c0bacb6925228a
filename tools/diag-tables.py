#!/usr/bin/env python3
"""Writes the tables that nvdiag decodes with (diag/data/*.txt) from the fact tables the tests compare them with.

usage: tools/diag-tables.py      (from the root of the repository)
"""

import json
from pathlib import Path


def methods():
    facts = json.loads(Path("diag/tests/data/class-methods.json").read_text())
    lines = [
        "# Methods of channel classes, by tools/diag-tables.py: class, then a line for each method:",
        "# offset[+stride] NAME FIELD:hi:lo[{VALUE=n,...}] ...",
    ]
    for cls in facts["classes"].values():
        lines.append(f"class {cls['id']:04x} {cls['kind']} {cls['name']}")
        for name, method in sorted(cls["methods"].items(), key=lambda item: item[1]["offset"]):
            stride = f"+{method['stride']:x}" if "stride" in method else ""
            words = [f"{method['offset']:04x}{stride}", name]
            for field, about in method.get("fields", {}).items():
                hi, lo = about["bits"]
                values = ",".join(f"{k}={v}" for k, v in about.get("enum", {}).items())
                words.append(f"{field}:{hi}:{lo}" + (f"{{{values}}}" if values else ""))
            lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


Path("diag/data/methods.txt").write_text(methods())
