"""Compilation from PTX, where there is an assembler."""

from __future__ import annotations

import sys

import hcq
import numpy as np
import pytest
from conftest import ROOT, missing
from hcq.source import of_this_python

sys.path.insert(0, str(ROOT / "hcq-py/examples"))
PTX = __import__("04_source").PTX


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """An assembler and an empty cache; skips where there is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        return hcq._hcq.ptxas(of_this_python())
    except hcq.NoCompiler:
        missing("ptxas")


def test_a_source_is_compiled_once_and_runs(compiler, device, tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(PTX)
    for source in (hcq.Source(PTX), hcq.Source(path)):
        x = device.buffer(np.arange(8, dtype=np.float32))
        device.load(source)["scale"][1, 8](x, 8, 3.0)
        assert (x.read() == 3 * np.arange(8)).all()
    assert hcq.Source(PTX).compile() == hcq.Source(PTX).compile("sm_80") != hcq.Source(PTX).compile("sm_87")
    assert len(list((tmp_path / "ptxgen").iterdir())) == 2


def test_a_refusal_shows_the_lines(compiler):
    with pytest.raises(hcq.CompileError, match="mull.rn") as found:
        hcq.Source(PTX.replace("mul.rn", "mull.rn")).compile()
    assert found.value.code == "COMPILE_REFUSED" and not isinstance(found.value, hcq.NoCompiler)


def test_without_an_assembler_the_places_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PTXAS", "/nowhere/ptxas")
    with pytest.raises(hcq.NoCompiler, match="/nowhere/ptxas") as found:
        hcq.Source(PTX).compile()
    assert found.value.code == "COMPILE_NOT_PTXAS"


def test_what_is_no_source_is_refused():
    with pytest.raises(hcq.CompileError, match="target"):
        hcq.Source("no PTX").compile()
    for arch in ("87", "sm_8", "compute_87", ""):
        with pytest.raises(ValueError, match="is no SM"):
            hcq.Source(PTX).compile(arch)
    with pytest.raises(ValueError, match="sm_75"):
        hcq.Source(PTX).compile("sm_75")
    with pytest.raises(FileNotFoundError):
        hcq.Source(ROOT / "nothing.ptx")
