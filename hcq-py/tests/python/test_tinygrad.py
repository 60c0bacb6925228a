"""tinygrad's device `HCQ` (tools/clients/tinygrad_hcq.py), where tinygrad is installed. ptxas compiles its kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcq
import numpy as np
import pytest
from conftest import ROOT, missing
from hcq import _hcq
from hcq.source import of_this_python

tinygrad: Any = pytest.importorskip("tinygrad")
sys.path.insert(0, str(ROOT / "tools/clients"))
import tinygrad_hcq  # noqa: E402, F401
from tinygrad import Context, Device, Tensor, TinyJit, UOp, Variable, dtypes  # noqa: E402
from tinygrad.device import Buffer, CompileError  # noqa: E402
from tinygrad.engine.realize import time_call  # noqa: E402

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _on_the_software_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """tinygrad's default device is HCQ, with PTX; no kernel comes from its cache of other runs."""
    try:
        _hcq.ptxas(of_this_python())
    except hcq.NoCompiler:
        missing("ptxas")
    monkeypatch.setenv("HCQ_DEVICE", "sim")
    with Context(DEV="HCQ:PTX", CACHELEVEL=0, DEBUG=0):
        yield


def numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RANDOM.random(shape, dtype=np.float32)


def test_results_are_those_of_numpy() -> None:
    a, b = numbers(24, 40), numbers(40, 8)
    assert Device.DEFAULT == "HCQ"
    np.testing.assert_allclose((Tensor(a) @ Tensor(b)).exp().numpy(), np.exp(a @ b), rtol=1e-5)
    np.testing.assert_array_equal((Tensor(a) * 100).cast(dtypes.int8).sum(0).numpy(), (a * 100).astype(np.int8).sum(0))


def test_products_of_floats_are_not_rounded_to_tf32() -> None:
    ones, thirds = np.ones((64, 64), np.float32), np.full((64, 64), 1 / 3, np.float32)
    with Context(TC=1):
        np.testing.assert_allclose((Tensor(ones) @ Tensor(thirds)).numpy(), ones @ thirds, rtol=1e-6)


def test_a_view_lies_in_its_buffer() -> None:
    base = Buffer("HCQ", 16, dtypes.int32).allocate()
    view = base.view(4, dtypes.int32, 8 * 4).allocate()
    for buffer, values in (base, np.arange(16)), (view, np.arange(100, 104)):
        memory = memoryview(bytearray(values.astype(np.int32).tobytes()))
        buffer.copy_from(Buffer("PYTHON", len(values), dtypes.int32, opaque=memory))
    assert base.numpy().tolist() == [*range(8), *range(100, 104), *range(12, 16)]
    assert view.numpy().tolist() == [100, 101, 102, 103]
    doubled = Tensor(np.arange(16, dtype=np.int32)).realize()[8:12].contiguous() * 2
    assert doubled.numpy().tolist() == [16, 18, 20, 22]


def test_queues_wait_for_each_other() -> None:
    values = numbers(1000)
    source = (Tensor(values) * 2).realize()
    on_other = source.to("HCQ:1").realize()
    assert on_other.device == "HCQ:1"
    source.assign(source * 0).realize()
    np.testing.assert_array_equal((on_other + 1).to("HCQ").numpy(), values * 2 + 1)


def test_a_jit_is_a_graph_whose_arguments_are_patched() -> None:
    @TinyJit
    def step(state: Any, column: Any, scale: Any) -> Any:
        product = (state @ column).relu().realize()
        return (product * scale).sum(0).realize()

    scale = Variable("scale", 1, 9)
    for i in range(1, 6):
        a, b = numbers(16, 1024) - 0.5, numbers(1024, 4)
        found = step(Tensor(a).realize(), Tensor(b).realize(), scale.bind(i)).numpy()
        np.testing.assert_allclose(found, (np.maximum(a @ b, 0) * i).sum(0), rtol=1e-4)
    (call,) = step.captured.linear.src
    assert call.src[0].arg == "graph"


def test_a_grid_that_varies_is_launched_without_a_graph() -> None:
    @TinyJit
    def step(values: Any) -> Any:
        return (values + 1).contiguous().realize().mul(2).realize()

    rows = Variable("rows", 1, 64)
    values = numbers(64, 32)
    for i in (3, 5, 7, 33):
        found = step(Tensor(values).realize()[: rows.bind(i)])
        np.testing.assert_allclose(found[:i].numpy()[:i], (values[:i] + 1) * 2, rtol=1e-6)


def test_the_checker_finds_work_that_nothing_orders_nowhere(tmp_path: Path) -> None:
    findings = tmp_path / "findings"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "graph or queues", __file__]
    checked = {"NVGPU_SIM_CHECK": "order", "NVGPU_SIM_SEED": "7", "NVGPU_SIM_FINDINGS": str(findings)}
    run = subprocess.run(command, env={**os.environ, **checked}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    records = [json.loads(line) for line in findings.read_text().splitlines()]
    assert {record["record"] for record in records} == {"launch", "ended"}, records


def test_a_call_has_a_time() -> None:
    linear, _ = (Tensor(numbers(64)) + 1).linear_with_vars()
    seconds = next(time_call(linear.src[-1]))
    assert 0 < seconds < 10


def test_text_that_is_no_ptx_is_refused_by_name() -> None:
    compiler = Device["HCQ"].compiler
    with pytest.raises(CompileError, match="nonsense"):
        compiler.compile(".version VERSION\n.target TARGET\n.address_size 64\nnonsense;\n")


def test_memory_of_the_program_is_not_taken() -> None:
    with pytest.raises(MemoryError) as error:
        Buffer("HCQ", 4, dtypes.float32).allocate(external_ptr=4096)
    assert "copy it" in str(error.value.__cause__)
