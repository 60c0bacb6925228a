#!/usr/bin/env bash
# Compares what cuda-gdb reads from GPU core dumps with what nvdiag reads: exception, kernel, pc, registers.
#
#   NVDIAG=target/release/nvdiag tools/core-oracle.sh FILE...
#
# Needs cuda-gdb (CUDA_GDB names it) and no GPU. Where FILE.json exists it is taken for the output of
# `nvdiag core --json FILE`, so that a machine without nvdiag will do.
set -euo pipefail

gdb=${CUDA_GDB:-cuda-gdb}
nvdiag=${NVDIAG:-nvdiag}
[ $# -gt 0 ] || { echo "usage: $0 FILE..." >&2; exit 2; }
command -v "$gdb" >/dev/null || { echo "$gdb is not found: CUDA_GDB names it" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for file; do
    if [ -e "$file.json" ]; then
        cp "$file.json" "$work/ours"
    else
        # Exit code 1: it found what failed.
        "$nvdiag" core --json "$file" >"$work/ours" || [ $? -eq 1 ]
    fi
    timeout 120 "$gdb" -nx -batch -ex "target cudacore $file" -ex 'info cuda devices' -ex 'info cuda sms' \
        -ex 'info cuda kernels' -ex 'info cuda warps' -ex 'info cuda lanes' -ex 'info registers' -ex 'bt' \
        -ex 'x/i $pc' >"$work/theirs" 2>&1 || true
    if python3 - "$work/ours" "$work/theirs" <<'PY'; then
import json, re, sys

ours = json.load(open(sys.argv[1]))
theirs = open(sys.argv[2], errors="replace").read()
problems = []

for words in ("Failed to read core file", "Could not open CUDA core file", "internal-error", "Failed to initialize"):
    if words in theirs:
        problems.append(f"cuda-gdb: {words}")
if "Opening GPU coredump" not in theirs:
    problems.append("cuda-gdb did not open the file")

sms = [sm for device in ours["devices"] for sm in device["sms"]]
warps = [warp for sm in sms for warp in sm["warps"] if warp["failed"]]
names = {found["name"] for found in sms + warps for found in [found.get("exception")] if found}
if names and not any(f"cuda exception: {name}" in theirs.lower() for name in names - {"unknown exception"}):
    if names != {"unknown exception"}:
        problems.append(f"cuda-gdb names no exception of {sorted(names)}")
compared = 0
if warps and warps[0].get("lanes"):
    warp = warps[0]
    function = warp["at"].get("function")
    if function and function not in theirs:
        problems.append(f"cuda-gdb does not name {function}")
    if int(warp["at"]["pc"], 16) not in {int(n, 16) for n in re.findall(r"0x[0-9a-f]+", theirs)}:
        problems.append(f"cuda-gdb does not show pc {warp['at']['pc']}")
    lane = next((lane for lane in warp["lanes"] if lane.get("exception")), warp["lanes"][0])
    found = {int(n): int(v, 16) for n, v in re.findall(r"^R(\d+)\s+(0x[0-9a-f]+)", theirs, re.M)}
    for number, value in enumerate(lane["registers"]):
        if number in found:
            compared += 1
            if found[number] != int(value, 16):
                problems.append(f"R{number}: cuda-gdb {found[number]:#x}, nvdiag {value}")
    if not compared:
        problems.append("cuda-gdb shows no registers")
for problem in problems:
    print(f"  {problem}")
print(f"  {compared} registers compared")
sys.exit(bool(problems))
PY
        echo "agrees   $file"
    else
        echo "DIFFERS  $file; cuda-gdb said:"
        sed 's/^/    /' "$work/theirs"
        failed=1
    fi
done
exit $failed
