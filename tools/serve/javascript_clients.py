#!/usr/bin/env python3
"""The packages openai and ai of npm against `llm-demo serve` with the embedded model.

usage: javascript_clients.py PROGRAM FOLDER     the path of llm-demo, and a folder for the packages of
javascript/package.json, which npm installs there; needs Node.js
"""
import pathlib
import shutil
import subprocess
import sys

from server import serving


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, folder = pathlib.Path(__file__).parent / "javascript", pathlib.Path(sys.argv[2])
    shutil.copytree(source, folder, dirs_exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    with serving(sys.argv[1], "--device", "sim", "--alias", "story", "--api-key", "secret") as (_, base):
        subprocess.run(["node", "clients.mjs", base, "secret"], cwd=folder, check=True)


main()
