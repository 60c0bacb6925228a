#!/usr/bin/env python3
"""Writes the tables of predictions into a page, between its marks, from what `llm-demo predict --against FILE
--json` printed.

    tools/predict-docs.py docs/performance.md AGAINST.json
"""
import json
import re
import sys


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def compared(report):
    """Each point, measured and predicted."""
    rows = [
        [row["model"], f"{row['position']:,}", f"{row['measured']:.0f}", f"{row['predicted']:.0f}", f"{row['error_percent']:.1f} %"]
        for row in report["rows"]
    ]
    return table(["model", "position", "measured", "predicted", "error"], rows)


def constants(report):
    """The constants with which the tables were made."""
    meaning = {
        "share": "of 3.35 TB/s",
        "ipc": "warp instructions per clock and SM in products",
        "attention_ipc": "the same in attention",
        "exchange_cycles": "from phase to phase; three times as much for attention over more than 256 positions",
        "launch_us": "launch, wait and all that a token costs besides; a fit may choose 15 at most",
    }
    rows = [[f"`{name.replace('_', '-')}`", f"{report['constants'][name]:g}", text] for name, text in meaning.items()]
    return table(["constant", "value", ""], rows)


def orin(report):
    """The points on the modules of the Orin, for the models of the first and the last point at each position."""
    models = list(dict.fromkeys(row["model"] for row in report["rows"]))
    wanted = [i for i, row in enumerate(report["rows"]) if row["model"] in (models[0], models[1], models[-1])]
    head = ["module", "mode", "SMs", "MHz", "GB/s"]
    head += [f"{report['rows'][i]['model']} at {report['rows'][i]['position']:,}" for i in wanted]
    rows = []
    for at in report["elsewhere"]:
        machine = at["machine"]
        row = [at["module"], machine["name"]] + [f"{machine[key]:g}" for key in ("sms", "mhz", "gbps")]
        rows.append(row + [f"{at['tokens_per_second'][i]:.3g}" for i in wanted])
    return table(head, rows)


def sources(report):
    """Where the power modes are from."""
    of = dict.fromkeys((at["module"], at["source"]) for at in report["elsewhere"])
    return table(["module", "power modes from"], [[module, source] for module, source in of])


def main():
    page, against = sys.argv[1:]
    with open(against, encoding="utf-8") as file:
        report = json.load(file)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    parts = {"constants": constants, "compared": compared, "orin": orin, "sources": sources}
    for name, make in parts.items():
        begin, end = f"<!-- predicted: {name} -->\n", f"<!-- predicted: end of {name} -->"
        text, count = re.subn(
            re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{make(report)}\n\n{end}", text, flags=re.S
        )
        if count != 1:
            raise SystemExit(f"{page}: {count} places for the table \"{name}\"")
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{page}: largest error {report['worst_percent']:.1f} % of {len(report['rows'])} points")


if __name__ == "__main__":
    main()
