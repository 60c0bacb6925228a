#!/usr/bin/env python3
"""The table of lines that GPU drivers print, with what they mean: formats of driver trees joined with `annotations/`.

    generate.py -o FILE.json.gz --tree RELEASE[:DRIVER]=PATH...     from trees (extract.py reads them)
    generate.py -o FILE.json.gz                                     FILE's own formats again, after a change of annotations

RELEASE is a name such as r36. DRIVER is `nvgpu` unless given; files of others get it as first folder. Several trees may have
one release. What is written holds no code: formats, where they are printed, and our words on them.
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEVELS = {"ERR": "error", "WRN": "warning", "INFO": "info", "DUMP": "dump"}
SEVERITIES = ("gpu", "channel", "call", "detail", "notice", "noise")
# What functions of the driver's start are called; a failure there stops the GPU.
START = re.compile(r"(init_support|setup_sw|setup_hw|sw_init|sw_setup|hw_init|finalize_poweron|_probe)\b|init_support_")
# What the driver puts around its messages is none of them.
FRAME = re.compile(r"^(nvgpu: %s %33s|__%s__)")
CHIP = re.compile(r"^(nvgpu|gk20a|gm20b|gm206|gp10b|gp106|gv100|gv11b|tu104|ga100|ga10b)(?=_)|(?<=_)(gk20a|gm20b|gv11b|gp10b)_")
CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(?:\*|\d+))?(hh|h|ll|l|z|j|t|q|L)?([diouxXcspn%])([a-zA-Z0-9]*)")


class Annotations:
    """The hand-written files."""

    def __init__(self, folder):
        def load(name):
            return tomllib.loads((folder / name).read_text())

        units = load("units.toml")
        self.advice = units["advice"]
        self.units = [(u["path"].split() or [""], u) for u in units["unit"]]
        self.layout = [(re.compile(pattern), paths) for pattern, paths in load("layout.toml")["files"]]
        self.groups = []
        for name in ("gr.toml", "host.toml", "memory.toml", "firmware.toml", "driver.toml"):
            for group in load(name)["group"]:
                self.groups.append((group["path"].split(), [self.rule(*line) for line in group["lines"]]))
        self.wording = [self.rule(*line) for line in load("wording.toml")["rules"][0]["lines"]]
        others = load("others.toml")
        self.others, self.xids = others["line"], others["xid"]

    def rule(self, pattern, severity, meaning, advice=None):
        assert severity in SEVERITIES or severity == "", (pattern, severity)
        assert advice in self.advice, (pattern, advice)
        return re.compile(pattern), severity, meaning, advice

    def unit(self, path):
        return next(unit for prefixes, unit in self.units if any(path.startswith(p) for p in prefixes))

    def places(self, path):
        """Paths of today's layout that a file stands for; the file's own first."""
        found = [paths for pattern, paths in self.layout if pattern.search(path)]
        known = self.unit(path)["path"] != ""
        if not found or known and not path.startswith(("common/fb", "common/ltc", "common/mc", "common/bus")):
            # A file that is where it belongs may still carry lines that moved since.
            return [path] + (found[0] if found else [])
        own = path.split("/", 2)[-1]
        return [place.format(own) for place in found[0]]

    def judge(self, path, function, text):
        """(unit, engine, severity, meaning, advice, by hand or not) of a line."""
        places = self.places(path)
        for place in places:
            for prefixes, rules in self.groups:
                if not any(place.startswith(p) for p in prefixes):
                    continue
                if found := self.first(rules, self.unit(place), function, text):
                    return (*found, True)
        unit = self.unit(places[0] if self.unit(places[0])["path"] else places[-1])
        return (*self.first(self.wording, unit, function, text), False)

    @staticmethod
    def first(rules, unit, function, text):
        for pattern, severity, meaning, advice in rules:
            if match := pattern.search(text):
                groups = [re.sub(r"\s*%\S*|0x%\S*", " ...", g or "").strip() for g in match.groups()]
                step = CHIP.sub("", function.strip("_")).strip("_").replace("_", " ") or "no step named"
                name = unit["name"]
                said = meaning.replace("{unit}", name).replace("{Unit}", name[0].upper() + name[1:]).replace("{step}", step)
                for number, group in enumerate(groups):
                    said = said.replace("{%d}" % number, group)
                severity = severity or unit["severity"]
                if severity == "call" and START.search(function):
                    severity = "gpu"
                return name, unit["engine"], severity, said, advice
        return None


def pieces(text):
    """A format as what matches its lines: literal texts and [kind, name] of values.

    Kinds: d decimal, x hexadecimal digits, p hexadecimal after 0x (or 0, or a name in brackets), s text, c one character,
    f a symbol. Runs of blanks are one blank, since logs squeeze them.
    """
    found, literal, at, names = [], "", 0, set()

    def value(kind, before, after):
        return [kind, name_of(before, after, names)]

    parts = []
    for match in CONVERSION.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        flags, _, _, conversion, extra = match.groups()
        if conversion == "%":
            parts.append(None)
            at -= len(extra)
            continue
        if conversion == "p":
            used = re.match(r"[fFsSB]|a[dp]?|ad|K|x", extra)
            kind = "f" if extra[:1] in tuple("fFsSB") else "p"
            at -= len(extra) - (used.end() if used else 0)
        else:
            at -= len(extra)
            kind = {"d": "d", "i": "d", "u": "d", "o": "d", "x": "x", "X": "x", "c": "c", "s": "s", "n": "s"}[conversion]
            kind = "p" if kind == "x" and "#" in flags else kind
        parts.append((kind, at))
    parts.append(text[at:])
    for part in parts:
        if part is None:
            literal += "%"
        elif isinstance(part, str):
            literal += part
        else:
            kind, end = part
            if literal:
                found.append(literal)
            found.append(value(kind, literal, text[end:]))
            literal = ""
    if literal:
        found.append(literal)
    found = [re.sub(r"\s+", " ", p) if isinstance(p, str) else p for p in found]
    if found and isinstance(found[0], str):
        found[0] = found[0].lstrip()
    if found and isinstance(found[-1], str):
        found[-1] = found[-1].rstrip()
    return [p for p in found if p != ""]


def name_of(before, after, names):
    """What a value is called in the words around it."""
    words = re.sub(r"\W*(0x)?$", "", before)
    words = re.split(r"[^\w .-]", words)[-1].strip()
    if not re.search(r"[A-Za-z]{2}", words):
        words = re.split(r"[^\w ]", re.sub(r"^\W+", "", after))[0]
        words = " ".join(words.split()[:2])
    name = re.sub(r"\W+", "_", " ".join(words.split()[-3:])).strip("_").lower() or "value"
    number, unique = 2, name
    while unique in names:
        unique, number = f"{name}_{number}", number + 1
    names.add(unique)
    return unique


def extracted(trees):
    """(release, driver, file, function, level, text) of each call of the trees, and where they are from."""
    rows, sources = [], []
    for tree in trees:
        name, path = tree.split("=", 1)
        release, _, driver = name.partition(":")
        driver = driver or "nvgpu"
        listing = subprocess.run([sys.executable, HERE / "extract.py", path], check=True, capture_output=True, text=True).stdout
        lines = [line.split("\t", 3) for line in listing.splitlines()]
        for file, function, level, text in lines:
            file = file if driver == "nvgpu" else f"{driver}/{file}"
            rows.append((release, driver, file, function, LEVELS[level], text.strip()))
        digest = hashlib.sha256(listing.encode()).hexdigest()
        sources.append({"release": release, "driver": driver, "calls": len(lines), "sha256": digest})
    return rows, sources


def kept(document):
    """The same from a table that was written before."""
    rows = []
    for line in document["lines"]:
        for file, function, releases in line["sites"] if line["origin"] == "tree" else []:
            rows += [(r, line["driver"], file, function, line["level"], line["text"]) for r in releases]
    return rows, document["sources"]


def table(rows, annotations):
    """The lines of trees: one for each text, level and meaning."""
    sites = {}
    for release, driver, file, function, level, text in rows:
        if FRAME.match(text):
            continue
        # One text printed by several drivers or at several levels is several lines.
        sites.setdefault((driver, level, text), {}).setdefault((file, function), set()).add(release)
    lines = []
    for (driver, level, text), places in sites.items():
        newest = max(max(releases) for releases in places.values())
        judged = {}
        # The newest release says what a text means; a site of an older one joins where the function is the
        # same.
        for (file, function), releases in sorted(places.items(), key=lambda p: (newest not in p[1], p[0])):
            verdict = annotations.judge(file, function, text)
            if newest not in releases and judged:
                same = [v for v, found in judged.items() if any(s[1] == function for s in found)]
                verdict = same[0] if same else next(iter(judged)) if len(judged) == 1 else verdict
            judged.setdefault(verdict, []).append((file, function, sorted(releases)))
        for (unit, engine, severity, meaning, advice, by_hand), found in judged.items():
            lines.append({
                "text": text, "driver": driver, "level": level, "origin": "tree",
                "releases": sorted({r for *_, releases in found for r in releases}),
                "unit": unit, "engine": engine, "severity": severity, "meaning": meaning, "advice": advice,
                "by_hand": by_hand, "sites": [list(site) for site in sorted(found)], "match": pieces(text),
            })
    return lines


def by_hand(annotations):
    """The lines of others.toml."""
    lines = []
    for line in annotations.others:
        assert line["severity"] in SEVERITIES and line["advice"] in annotations.advice, line
        sites = [["", line["function"], line["releases"]]] if "function" in line else []
        lines.append({
            "text": line["text"], "driver": line["driver"], "level": "error", "origin": "hand",
            "releases": line["releases"], "unit": line.get("unit", f"the driver {line['driver']}"), "engine": line["engine"],
            "severity": line["severity"], "meaning": line["meaning"], "advice": line["advice"], "by_hand": True,
            "sites": sites, "match": pieces(line["text"]),
        })
    for number, (engine, severity, meaning, advice) in annotations.xids.items():
        text = f"NVRM: Xid (%s): {number}, %s"
        lines.append({
            "text": text, "driver": "nvrm", "level": "error", "origin": "hand", "releases": ["desktop"],
            "unit": "the desktop driver", "engine": engine, "severity": severity, "meaning": meaning, "advice": advice,
            "by_hand": True, "sites": [], "match": ["NVRM: Xid (", ["s", "device"], f"): {number}, ", ["s", "message"]],
        })
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tree", action="append", default=[], metavar="RELEASE[:DRIVER]=PATH")
    options = parser.parse_args()
    annotations = Annotations(HERE / "annotations")
    if options.tree:
        rows, sources = extracted(options.tree)
    else:
        rows, sources = kept(json.loads(gzip.decompress(options.output.read_bytes())))
    hand = by_hand(annotations)
    known = {line["text"] for line in hand}
    lines = [line for line in table(rows, annotations) if line["text"] not in known] + hand
    lines.sort(key=lambda line: (line["driver"] != "nvgpu", line["driver"], line["text"], line["level"], line["sites"]))
    document = {
        "schema": "nvdiag.formats/1",
        "command": "tools/nvgpu-formats/generate.py", "sources": sources,
        "advice": annotations.advice, "lines": lines,
    }
    # One line of the table on one line of the file, so that differences can be read.
    head = json.dumps({k: v for k, v in document.items() if k != "lines"}, indent=1)[:-2]
    body = ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    packed = gzip.compress(f'{head},\n "lines": [\n{body}\n]}}\n'.encode(), 9, mtime=0)
    options.output.write_bytes(packed)
    rest = [line for line in lines if not line["by_hand"]]
    print(f"{len(lines)} lines ({len({line['text'] for line in lines})} texts), {len(rest)} explained by their wording alone, {len(packed)} bytes")


if __name__ == "__main__":
    main()
