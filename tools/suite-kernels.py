#!/usr/bin/env python3
"""Compiles the hand-written kernels of the tests for every SM, and those of hcq for the SMs that it has code for, and writes what they were made of into a manifest.

    tools/suite-kernels.py [--ptxas PATH] [FOLDER...]

Rewrites MODULE.sm_NN.cubin and manifest.json in the folders below, or in those named. ptxas is taken from the option, then from PTXAS, then from
PATH. `tests/tests/it/kernels.rs` checks the manifests. tests/kernels/barriers.*.cubin are not among them: their code was changed by
hand after compiling.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMS = (80, 86, 87, 89, 90)
MODULES = {
    "tests/kernels": (["bench", "bounds", "costs", "early", "links", "matrix", "suite"], SMS),
    "sim/tests/data": (["bulk", "fill", "pairs", "planted", "races", "unwritten", "waits", "warpgroups"], SMS),
    "hcq/kernels": (["copy"], (80, 87, 90)),
    # Their PTX is made by tools/checker-corpus/build.sh.
    "tests/checker": (["init", "memory", "race", "race_global", "right", "sync"], (87,)),
}
# Modules whose instructions older SMs lack.
SINCE = {"bulk": 90, "early": 90, "warpgroups": 90}
# Modules for an SM with what no later one has.
SPECIFIC = {"warpgroups"}
FLAGS = ["-O3"]
# Kernels whose findings name lines.
LINES = {"tests/checker"}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=list(MODULES))
    args = parser.parse_args()
    ptxas = args.ptxas or os.environ.get("PTXAS") or shutil.which("ptxas")
    if not ptxas:
        raise SystemExit("no ptxas: name it with --ptxas, PTXAS or PATH")
    banner = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    for folder in args.folders:
        modules, sms = MODULES[folder]
        flags = [*FLAGS, "-lineinfo"] if folder in LINES else FLAGS
        rows = []
        for module in modules:
            ptx = ROOT / folder / f"{module}.ptx"
            for sm in (sm for sm in sms if sm >= SINCE.get(module, 0)):
                target = f"sm_{sm}a" if module in SPECIFIC else f"sm_{sm}"
                cubin = ptx.with_name(f"{module}.{target}.cubin")
                # Where the .cu file is not found: ptxas would note its time.
                subprocess.run([ptxas, *flags, f"-arch={target}", ptx, "-o", cubin], check=True, cwd="/")
                kernels = re.findall(r"\.entry\s+(\w+)", ptx.read_text())
                rows.append({"file": cubin.name, "target": target, "kernels": kernels,
                             "ptx_sha256": sha256(ptx), "cubin_sha256": sha256(cubin)})
        manifest = {"schema": "ptxgen.manifest/1", "ptxas": re.search(r"V([0-9.]+)", banner).group(1), "flags": flags,
                    "cubins": rows}
        (ROOT / folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
