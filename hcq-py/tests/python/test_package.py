"""The package as a whole: examples, the page, the command line, the stubs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import hcq
import pytest
from conftest import ROOT, missing
from hcq.source import of_this_python

EXAMPLES = ROOT / "hcq-py/examples"


def run(*args, code=0, **variables):
    environment = {**os.environ, "HCQ_DEVICE": "sim", **variables}
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        ("01_vecadd", "ga10b (sim)\n", "\n1000 sums are right\n"),
        ("02_graph_replay", "", "11 replays of 2 launches: every element is 122\n"),
        ("03_two_queues", "", "131072 floats doubled in 8 parts\n"),
        ("04_source", "", "1000 floats halved\n"),
        ("05_fault", "the GPU stopped: access to unmapped memory at 0x", "LDG.E R2, [R2.64] [notifier 31]\n"),
        ("06_persistent", "32 blocks on 16 SMs\n", "100 generations of 4096 cells in one launch\n"),
    ],
)
def test_an_example_prints_what_the_rust_one_prints(name, begin, end):
    text = run(EXAMPLES / f"{name}.py")
    assert text.startswith(begin) and text.endswith(end)


def test_examples_run_on_other_sms():
    for sm in ("sm_80", "sm_90"):
        run(EXAMPLES / "01_vecadd.py", NVGPU_SIM_ARCH=sm)
        run(EXAMPLES / "04_source.py", NVGPU_SIM_ARCH=sm)


def test_the_control_loop_prints_the_rows_of_the_benchmark():
    lines = run(EXAMPLES / "loop.py", "--hz", "100", "--seconds", "0.2", "--load", "--histogram").splitlines()
    assert re.fullmatch(r"100 Hz, every core busy: \d+ ticks, \d+ missed", lines[1])
    figures = " ".join(rf"{name} +[\d.]+ " for name in ("min", "p50", "p99", r"p99\.99", "max"))
    for line, name in zip(lines[2:5], ("wake-up", r"launch \+ wait \+ read", "response")):
        assert re.fullmatch(rf"  {name} +{figures} us", line), line
    assert lines[5].endswith("#")
    assert "more than 0" in run(EXAMPLES / "loop.py", "--hz", "0", code=2)


def test_the_page_runs():
    """The blocks of docs/python.md, in one program, one after the other; `assert` and printed lines hold."""
    try:
        hcq._hcq.ptxas(of_this_python())
    except hcq.NoCompiler:
        missing("ptxas")
    page = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 7
    run("-c", "\n".join(blocks))


def test_the_command_line_describes_the_device():
    document = json.loads(run("-m", "hcq", "info", "--device", "sim", "--json"))
    assert (document["schema"], document["name"], document["sm"]) == ("hcq.info/1", "ga10b", 87)
    assert document["version"] == hcq.__version__
    assert re.search(r"^sm +87$", run("-m", "hcq", "info"), re.MULTILINE)
    assert "expected auto, nvgpu, rm or sim" in run("-m", "hcq", "info", "--device", "cuda", code=1)
    run("-m", "hcq", code=2)


def test_every_class_and_method_has_a_text():
    for name in hcq.__all__:
        thing = getattr(hcq, name)
        if not isinstance(thing, type) or thing.__module__ == "ctypes":
            continue
        assert thing.__doc__, name
        for method, value in vars(thing).items():
            if not method.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{method}"
