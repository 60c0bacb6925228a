#!/usr/bin/env python3
"""Runs each case of tests/checker/ under the tools of compute-sanitizer, and judges their findings.

    tools/checker-corpus/sanitize.py --run RUN --cubins FOLDER --out FOLDER [--sanitizer PATH] [--seconds N] [--only WORD]
    tools/checker-corpus/sanitize.py --judge FOLDER

Needs python3 and compute-sanitizer. Writes runs.jsonl, each run with its output and time, and from it sanitizer.json: the
version, the options and the time of each tool, and for each case the verdict and what the tool said. The second form makes sanitizer.json of a
runs.jsonl again. A tool's verdict on a faulty kernel is `right` if a finding of a tool for this class of mistakes names a
line with `// BUG`, or `// OTHER`, the other access of a race or where others wait; `vague` for any other finding, also an error of the
driver without a place; `missed` for none. On a right kernel a finding is `false`, none is `clean`.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import queue
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / "tests/checker"
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
# The tools whose findings fit a class of mistakes. A barrier that does not hold what it should is seen in the data too, racecheck
# reports deadlocks, and a barrier object may be unwritten.
FITTING = {"memory": ["memcheck"], "race": ["racecheck"], "init": ["initcheck"],
           "sync": ["synccheck", "racecheck", "initcheck"]}
# Options of each tool, each given if the tool's help has it. Padding separates allocations, as the checker's red zones do.
OPTIONS = {
    "memcheck": [["--padding", "4096"]],
    "racecheck": [["--racecheck-deadlock-timeout", "2000"]],
    "initcheck": [["--initcheck-address-space", "all"]],
    "synccheck": [],
}
WORKERS = 12
TIMEOUT = 20
# Lines of the tools that are no findings: titles, sums, and how the program ended.
NO_FINDING = re.compile(r"COMPUTE-SANITIZER|SUMMARY|Target application|process didn't terminate|No attachable|"
                        r"No CUDA-capable|Saved host backtrace|Use --show|^\s*$|print limit|errors were not|Launch #")
# Errors that the driver returned: the launch failed, without a place.
DRIVER = re.compile(r"Program hit|CUDA_ERROR_|cudaError")
PLACE = re.compile(r"([\w.+-]+\.(?:cuh?|hp?p?)):(\d+)")
RECORD = re.compile(r"^=========\s?(\s*)(.*)$")


def cases():
    return json.loads((CORPUS / "cases.json").read_text())


def class_of(case):
    """`memory`, `race`, `init`, `sync`, or `right` for patterns without a faulty twin: the first word of the file's name."""
    return case["file"].split("_")[0]


def flat(case):
    """The line of `run` for a case."""
    words = lambda numbers: " ".join(map(str, numbers))
    fields = [case["kernel"], words(case["grid"]), words(case["block"]), str(case["shared"]), ";".join(case["args"])]
    return "|".join(fields)


def marks(file):
    """For each kernel of a file the lines with `// BUG` and those with `// OTHER`."""
    found, kernel = {}, None
    for number, line in enumerate((CORPUS / f"{file}.cu").read_text().splitlines(), 1):
        begin = re.match(r"__global__ void (\w+)\(", line)
        if begin:
            kernel = found.setdefault(begin.group(1), {"bug": [], "other": []})
        mark = re.search(r"// (BUG|OTHER)\b", line)
        if mark:
            kernel[mark.group(1).lower()].append(number)
    return found


def records(output):
    """The findings in a tool's output: a headline, and the lines below it that are set in."""
    found = []
    for line in output.splitlines():
        match = RECORD.match(line)
        if not match:
            continue
        indent, text = match.groups()
        if not text:
            continue
        if len(indent) >= 2:
            if found:
                found[-1].append(text)
        elif NO_FINDING.search(text):
            found.append([])
        else:
            found.append([text])
    return [record for record in found if record]


def judge(case, lines, tool, output):
    """The verdict on a tool's output, and the headline of the finding that decided it."""
    all_records = [[part[:300] for part in record] for record in records(output)]
    if case["right"]:
        return ("false", " / ".join(all_records[0][:3])) if all_records else ("clean", "")
    allowed = lines["bug"] + (lines["other"] if class_of(case) in ("race", "sync") else [])
    best = ("missed", "")
    for record in all_records:
        text = " / ".join(record[:3])
        places = [int(line) for part in record for file, line in PLACE.findall(part) if file == case["file"] + ".cu"]
        fits = tool in FITTING[class_of(case)] and not DRIVER.search(record[0])
        if fits and any(line in allowed for line in places):
            return "right", text
        if best[0] == "missed":
            best = ("vague", text)
    return best


def run(command, timeout):
    """Output, exit code (None if it was given up) and seconds of a command."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=False)
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            output = b""
        code = None
    return output.decode(errors="replace"), code, time.monotonic() - begin


class Runs:
    """All runs of all tools, with a limit of time for all together."""

    def __init__(self, args, options):
        self.args, self.options = args, options
        self.end = time.monotonic() + args.seconds
        self.ports = queue.Queue()
        for worker in range(args.workers):
            self.ports.put(49200 + 16 * worker)

    def one(self, case, tool):
        row = {"kernel": case["kernel"], "tool": tool}
        if time.monotonic() > self.end:
            return {**row, "seconds": 0.0, "end": "not run", "output": ""}
        command = [str(self.args.run.resolve()), str((self.args.cubins / f"{case['file']}.sm_90.cubin").resolve()),
                   str((self.args.out / "cases.txt").resolve()), case["kernel"]]
        port = self.ports.get()
        try:
            if tool != "plain":
                # A range of ports for each run: those at the same time would take each other's.
                command = [self.args.sanitizer, "--tool", tool, "--print-limit", "3", "--port", str(port),
                           *self.options[tool], *command]
            output, code, seconds = run(command, TIMEOUT)
        finally:
            self.ports.put(port)
        ends = re.findall(r"^end: (.*)$", output, re.MULTILINE)
        end = ends[-1] if ends else "timeout" if code is None else f"exit {code}"
        return {**row, "seconds": round(seconds, 2), "end": end, "output": output[:8000]}


def gpu_name():
    try:
        output = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                                check=False).stdout
    except OSError:
        output = ""
    return output.strip().split("\n")[0] or "an unknown GPU"


def options_of(sanitizer):
    help_text = subprocess.run([sanitizer, "--help"], capture_output=True, text=True, check=False).stdout
    return {tool: [word for option in options if option[0] in help_text for word in option]
            for tool, options in OPTIONS.items()}


def overall(case, row):
    """The verdict of the best tool on a faulty kernel, of the worst on a right one, and the tool."""
    order = ["false", "clean"] if case["right"] else ["right", "vague", "missed"]
    ranked = [(order.index(row[tool]["verdict"]), tool) for tool in TOOLS if row[tool]["verdict"] in order]
    # Among equals, the tool for the class.
    ranked.sort(key=lambda r: (r[0], r[1] not in FITTING.get(class_of(case), [])))
    return (order[ranked[0][0]], ranked[0][1]) if ranked else (None, None)


def measure(args):
    """Runs all, the fitting tools first, so that a limit of time costs the least."""
    args.out.mkdir(parents=True, exist_ok=True)
    all_cases = [case for case in cases() if not args.only or args.only in case["kernel"]]
    (args.out / "cases.txt").write_text("".join(flat(case) + "\n" for case in all_cases))
    options = options_of(args.sanitizer)
    version = subprocess.run([args.sanitizer, "--version"], capture_output=True, text=True, check=False).stdout
    runs = Runs(args, options)
    jobs = [(case, tool) for case in all_cases for tool in ["plain", *TOOLS]]
    fitting = lambda case, tool: tool in FITTING.get(class_of(case), [])
    jobs.sort(key=lambda job: (job[1] != "plain", not fitting(*job), job[0]["right"]))
    begin = time.monotonic()
    with (args.out / "runs.jsonl").open("w") as log, concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        for row in pool.map(lambda job: runs.one(*job), jobs):
            log.write(json.dumps(row) + "\n")
            log.flush()
        head = {
            "gpu": gpu_name(),
            "version": " ".join(re.findall(r"Version (\S+)", version)) or version.strip(),
            "options": {tool: " ".join(words) for tool, words in options.items()},
            "workers": args.workers,
            "wall_seconds": round(time.monotonic() - begin, 1),
        }
        log.write(json.dumps(head) + "\n")


def judge_all(folder):
    """Judges the runs of a folder, writes sanitizer.json, and prints the sums."""
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    head = next((line for line in lines if "kernel" not in line), {})
    runs = {(line["kernel"], line["tool"]): line for line in lines if "kernel" in line}
    marked = {file: marks(file) for file in {case["file"] for case in cases()}}
    table, counts = [], collections.Counter()
    for case in (case for case in cases() if (case["kernel"], "plain") in runs):
        row = {}
        for tool in ["plain", *TOOLS]:
            run_of = runs.get((case["kernel"], tool), {"end": "not run", "seconds": 0.0, "output": ""})
            row[tool] = {"end": run_of["end"], "seconds": run_of["seconds"]}
            if tool != "plain":
                verdict, text = judge(case, marked[case["file"]][case["kernel"]], tool, run_of["output"])
                row[tool] |= {"verdict": None if run_of["end"] == "not run" else verdict, "text": text}
        verdict, tool = overall(case, row)
        text = row[tool]["text"] if tool else ""
        table.append({"kernel": case["kernel"], "verdict": verdict, "tool": tool, "text": text})
        counts[class_of(case) + (" right" if case["right"] else ""), verdict] += 1
        if case["right"] and row["plain"]["end"] != "CUDA_SUCCESS":
            print(f"{case['kernel']} is right, and ends with {row['plain']}")
    spent = {tool: [run["seconds"] for run in runs.values() if run["tool"] == tool] for tool in ["plain", *TOOLS]}
    seconds = {tool: round(sum(times), 1) for tool, times in spent.items()}
    head = json.dumps({**head, "tool_seconds": seconds}, indent=2).removesuffix("\n}")
    rows = ",\n".join(f"    {json.dumps(row)}" for row in table)
    (folder / "sanitizer.json").write_text(f'{head},\n  "cases": [\n{rows}\n  ]\n}}\n')
    for (group, verdict), count in sorted(counts.items(), key=str):
        print(f"{group:14} {verdict or 'not run':8} {count}")
    print(f"of each tool, in s: {seconds}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path)
    parser.add_argument("--cubins", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--only")
    parser.add_argument("--judge", type=pathlib.Path)
    args = parser.parse_args()
    if args.judge:
        judge_all(args.judge)
    elif args.run and args.cubins and args.out:
        measure(args)
        judge_all(args.out)
    else:
        parser.error("--run, --cubins and --out, or --judge")


if __name__ == "__main__":
    sys.exit(main())
