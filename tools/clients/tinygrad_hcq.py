"""tinygrad's device `HCQ`: its kernels run through the Python package hcq, without ioctls of tinygrad's own.

::

    import tinygrad_hcq             # or: python -m pytest -p tinygrad_hcq
    from tinygrad import Tensor     # with DEV=HCQ in the environment, or Tensor(..., device="HCQ")

`HCQ_DEVICE` names the GPU, as for every program on hcq. Kernels are CUDA C that NVRTC compiles; with `DEV=HCQ:PTX` they
are PTX that ptxas compiles. `HCQ:1` is a second queue of the same GPU.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import hcq
from tinygrad.codegen.opt.tc import TensorCore
from tinygrad.device import Buffer, BufferSpec, Compiled, CompileError, Compiler, LRUAllocator, Program, TinyELF
from tinygrad.dtype import dtypes
from tinygrad.engine.jit import GraphRunner
from tinygrad.helpers import ALLOW_TF32, Target
from tinygrad.renderer.cstyle import CUDARenderer
from tinygrad.renderer.ptx import PTXRenderer
from tinygrad.uop.ops import UOp

PATIENCE = float(os.environ.get("HCQ_PATIENCE", "600"))
"""Seconds for which a program waits for kernels: the software GPU is slow."""


@functools.cache
def gpu() -> hcq.Device:
    """The GPU, which all devices of tinygrad share."""
    return hcq.open(patience=PATIENCE)


def without_tf32(cores: list[TensorCore]) -> list[TensorCore]:
    """Those that tinygrad uses on devices that it knows as NVIDIA's: products of floats are not rounded."""
    return [core for core in cores if core.dtype_in != dtypes.float or ALLOW_TF32]


class HCQRenderer(CUDARenderer):
    """CUDA C, which NVRTC compiles."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.tensor_cores = without_tf32(self.tensor_cores)


class HCQPTXRenderer(PTXRenderer):
    """PTX, which ptxas compiles."""

    def __init__(self, target: Target) -> None:
        super().__init__(replace(target, device="CUDA"))
        self.target, self.tensor_cores = target, without_tf32(self.tensor_cores)
        self.compiler = PtxasCompiler(self.compiler, target.arch)


class PtxasCompiler(Compiler):
    """The ptxas that hcq finds, after the compiler that makes the text whole."""

    def __init__(self, text: Compiler, arch: str) -> None:
        super().__init__(f"compile_hcq_ptx_{arch}")
        self.text, self.arch = text, arch

    def compile(self, src: str) -> bytes:
        try:
            return hcq.Source(self.text.compile(src).decode()).compile(self.arch)
        except hcq.CompileError as error:
            raise CompileError(str(error)) from error


class Place(NamedTuple):
    """Memory as tinygrad's buffers and their views have it."""

    buffer: hcq.Buffer
    offset: int = 0


class HCQAllocator(LRUAllocator["HCQDevice"]):
    """Memory of the GPU. It goes when nothing names it any more, launches neither."""

    def _alloc(self, size: int, options: BufferSpec) -> Place:
        if options.external_ptr is not None:
            raise RuntimeError("hcq does not map memory that a program has allocated: copy it")
        host = options.host or options.cpu_access
        return Place(gpu().host_buffer(size) if host else gpu().buffer(size))

    def _offset(self, buf: Place, size: int, offset: int) -> Place:
        return Place(buf.buffer, buf.offset + offset)

    def _copyin(self, dest: Place, src: memoryview) -> None:
        dest.buffer.write(src, dest.offset)

    def _copyout(self, dest: memoryview, src: Place) -> None:
        src.buffer.read_into(dest, src.offset)

    def _transfer(self, dest: Place, src: Place, sz: int, src_dev: HCQDevice, dest_dev: HCQDevice) -> None:
        dest_dev.queue.wait_for(src_dev.point)
        dest_dev.run(lambda queue: queue.copy(src.buffer, dest.buffer, src.offset, dest.offset, sz))
        src_dev.queue.wait_for(dest_dev.point)


def arguments(places: Sequence[Place], vals: Sequence[int] = ()) -> list[hcq.BufferAt | int]:
    """A kernel's arguments: the cubin has the sizes of the numbers."""
    return [*(place.buffer.at(place.offset) for place in places), *vals]


class HCQProgram(Program["HCQDevice"]):
    """A compiled kernel."""

    def __init__(self, dev: HCQDevice, obj: TinyELF) -> None:
        self.dev, self.kernel = dev, gpu().load(obj.lib)[obj.name]

    def __call__(
        self,
        *bufs: Place,
        global_size: tuple[int, int, int] = (1, 1, 1),
        local_size: tuple[int, int, int] = (1, 1, 1),
        vals: tuple[int, ...] = (),
        wait: bool = False,
        timeout: int | None = None,
        **_: Any,
    ) -> float | None:
        args = arguments(bufs, vals)
        return self.dev.run(lambda queue: queue.launch(self.kernel, global_size, local_size, *args), wait, timeout)


class HCQGraph(GraphRunner):
    """The kernels of a TinyJit as a graph of hcq: later calls patch its arguments and replay it."""

    def __init__(self, linear: UOp, input_uops: tuple[UOp, ...] = ()) -> None:
        super().__init__(linear, input_uops)
        programs: list[Any] = self.runtimes
        self.dev: HCQDevice = programs[0].dev
        builder = gpu().graph()
        self.nodes: list[hcq.Node] = []
        for i, ((_, ast, bufs, device_vars), program) in enumerate(zip(self.calls, programs)):
            grid, block = ast.arg.launch_dims({})
            vals = [device_vars.get(var.expr, 0) for var in ast.arg.vars]
            after = [self.nodes[k] for k in self._access_resources(bufs, ast.arg.outs, i)]
            args = arguments([buf._buf for buf in bufs], vals)
            self.nodes.append(builder.launch(program.kernel, grid, block, *args, after=after))
        self.graph = builder.build()

    @staticmethod
    def supports_uop(batch_devs: list[Compiled], new_call: UOp) -> bool:
        # A replay has the grids that were recorded.
        if not GraphRunner.supports_uop(batch_devs, new_call):
            return False
        info = new_call.src[0].arg
        return all(isinstance(side, int) for side in (*info.global_size, *(info.local_size or ())))

    def __call__(self, input_uops: tuple[UOp, ...], var_vals: dict[str, int], wait: bool = False) -> float | None:
        for node, places in zip(self.nodes, self.uop_replace):
            for argument, slot in places:
                self.graph.patch(node, argument, *arguments([cast(Buffer, input_uops[slot].buffer)._buf]))
        for i, var, value in self.updated_vars(var_vals):
            self.graph.patch(self.nodes[i], len(self.calls[i][2]) + var, value)
        return self.dev.run(self.graph.replay, wait)


class HCQDevice(Compiled):
    """A queue of the GPU."""

    def __init__(self, device: str) -> None:
        self.queue = gpu().queue()
        self.point = self.queue.submit()
        super().__init__(
            device, HCQAllocator(self), [HCQRenderer, HCQPTXRenderer], HCQProgram, HCQGraph, f"sm_{gpu().info.sm}"
        )

    def run(self, record: Callable[[hcq.Queue], Any], wait: bool = False, timeout: int | None = None) -> float | None:
        """Submits what `record` records; with `wait` returns the seconds that it takes, of at most `timeout` ms."""
        if not wait:
            record(self.queue)
            self.point = self.queue.submit()
            return None
        before = self.queue.timestamp()
        record(self.queue)
        after = self.queue.timestamp()
        self.point = self.queue.submit()
        self.point.wait(timeout / 1e3 if timeout else PATIENCE)
        assert before.ns is not None and after.ns is not None  # the work has ended
        return (after.ns - before.ns) / 1e9

    def synchronize(self) -> None:
        self.point.wait(PATIENCE)


def register() -> None:
    """Makes tinygrad find the device, and NVRTC with its headers where NVIDIA's Python packages have them."""
    sys.modules["tinygrad.runtime.ops_hcq"] = sys.modules[__name__]
    nvidia = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (nvidia.submodule_search_locations or ())] if nvidia else []
    for variable, pattern, up in ("NVRTC_PATH", "*/lib/libnvrtc.so.*", 0), ("CUDA_PATH", "*/include/cuda_fp16.h", 2):
        for file in (file for root in roots for file in sorted(root.glob(pattern))):
            os.environ.setdefault(variable, str([file, *file.parents][up]))


register()
