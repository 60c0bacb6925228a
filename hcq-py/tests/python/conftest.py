"""The software GPU, with the kernels of hcq's examples."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import hcq
import pytest

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


def missing(tool: str) -> NoReturn:
    """A test lacks a tool: it skips, but where all are wanted it fails."""
    if os.environ.get("REQUIRE_ORACLES") == "yes":
        pytest.fail(f"no {tool}")
    pytest.skip(f"no {tool}")


@pytest.fixture(scope="session")
def device() -> hcq.Device:
    """A device that no test loses."""
    return hcq.open("sim")


@pytest.fixture(scope="session")
def program(device: hcq.Device) -> hcq.Program:
    """vecadd, axpy and rule90."""
    return device.load(CUBINS)


@pytest.fixture(scope="session")
def vecadd(program: hcq.Program) -> hcq.Kernel:
    """`vecadd(a, b, c, n)`: c = a + b."""
    return program["vecadd"]
