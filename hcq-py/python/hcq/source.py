"""Kernels as PTX."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from . import _hcq
from .errors import CompileError


def of_this_python() -> str | None:
    """The assembler of NVIDIA's packages in this Python: ``nvidia-cuda-nvcc-cu12``, ``nvidia-cuda-nvcc``."""
    for package in ("nvidia.cuda_nvcc", "nvidia.cu13"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in found.submodule_search_locations or () if found else ():
            path = Path(folder, "bin/ptxas")
            if path.is_file():
                return str(path)
    return None


class Source:
    """PTX, NVIDIA's assembly language, which its assembler ``ptxas`` makes machine code of.

    ``ptxas`` is the one that ``PTXAS`` names, that of this Python's package ``nvidia-cuda-nvcc-cu12``, or one in
    ``PATH`` and CUDA installations; `NoCompiler` lists the places. What was compiled once comes from ``~/.cache/ptxgen``.
    """

    def __init__(self, ptx: str | os.PathLike[str]) -> None:
        """PTX, as text or as the path of a file."""
        self.ptx = ptx if isinstance(ptx, str) else Path(ptx).read_text(encoding="utf-8")

    def compile(self, arch: str | None = None) -> bytes:
        """The cubin for an SM such as ``sm_87``; without one for that of the source's ``.target``."""
        named = arch if arch is not None else self._target()
        number = re.fullmatch(r"sm_(\d{2,3})a?", named)
        if number is None:
            raise ValueError(f"{named!r} is no SM: sm_87 is one")
        return _hcq.compile(self.ptx, int(number[1]), of_this_python())

    def _target(self) -> str:
        found = re.search(r"^\s*\.target\s+(\w+)", self.ptx, re.MULTILINE)
        if found is None:
            raise CompileError("the source has no line `.target sm_NN`, and no SM was named")
        return found[1]
