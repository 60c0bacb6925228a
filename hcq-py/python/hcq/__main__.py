"""``python -m hcq info``: what a device is, and whether kernels can be compiled here."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

import hcq
from hcq import _hcq
from hcq.source import of_this_python


def info(device: str | None, as_json: bool) -> None:
    """Prints a device's description."""
    with hcq.open(device) as opened:
        facts = {"version": hcq.__version__, **asdict(opened.info), "free_memory": opened.free_memory}
    try:
        path, version = _hcq.ptxas(of_this_python())
        facts["ptxas"] = f"{version} ({path})"
    except hcq.NoCompiler:
        facts["ptxas"] = None
    if as_json:
        print(json.dumps({"schema": "hcq.info/1", **facts}, indent=2))
        return
    for name, value in facts.items():
        shown = f"{value:#x}" if name.endswith("_class") else "not known" if value is None else value
        print(f"{name.replace('_', ' '):<22} {shown}")


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m hcq", description="Command queues for NVIDIA GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = commands.add_parser("info", help="describe a device")
    about.add_argument("--device", help="auto, nvgpu, rm or sim; by default what HCQ_DEVICE says")
    about.add_argument("--json", action="store_true", help="print a JSON document")
    given = parser.parse_args()
    try:
        info(given.device, given.json)
    except hcq.Error as error:
        print(f"hcq: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
