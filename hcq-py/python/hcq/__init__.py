"""Hardware command queues for NVIDIA GPUs without the CUDA runtime, and a software GPU.

::

    device = hcq.open("auto")
    a, c = device.buffer(array), device.buffer(array.shape, array.dtype)
    kernel = device.load("scale.sm_87.cubin")["scale"]
    kernel[4, 256](a, c, 0.5, array.size).wait()
    result = c.read()
"""

import atexit as _atexit
from ctypes import c_double as f64
from ctypes import c_float as f32
from ctypes import c_int8 as i8
from ctypes import c_int16 as i16
from ctypes import c_int32 as i32
from ctypes import c_int64 as i64
from ctypes import c_uint8 as u8
from ctypes import c_uint16 as u16
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64

from . import _hcq
from ._hcq import (
    Buffer,
    BufferAt,
    Device,
    Graph,
    GraphBuilder,
    HostBuffer,
    Kernel,
    Launcher,
    Node,
    Program,
    Queue,
    SyncPoint,
    Timestamp,
    __version__,
    open,
)
from .errors import (
    ArgumentError,
    Closed,
    CompileError,
    DeviceLost,
    DriverError,
    Error,
    ForeignDevice,
    Forked,
    GpuFault,
    LaunchError,
    NoCompiler,
    NoKernel,
    OpenError,
    OutOfMemory,
    ProgramError,
    QueueError,
    RangeError,
    Timeout,
)
from .facts import ClockPair, Fault, Info, Mapping, Occupancy
from .source import Source

# Threads that are in a call of this package when the interpreter ends stay there.
_atexit.register(_hcq.end)

__all__ = [
    "ArgumentError",
    "Buffer",
    "BufferAt",
    "ClockPair",
    "Closed",
    "CompileError",
    "Device",
    "DeviceLost",
    "DriverError",
    "Error",
    "Fault",
    "ForeignDevice",
    "Forked",
    "GpuFault",
    "Graph",
    "GraphBuilder",
    "HostBuffer",
    "Info",
    "Kernel",
    "LaunchError",
    "Launcher",
    "Mapping",
    "NoCompiler",
    "NoKernel",
    "Node",
    "Occupancy",
    "OpenError",
    "OutOfMemory",
    "Program",
    "ProgramError",
    "Queue",
    "QueueError",
    "RangeError",
    "Source",
    "SyncPoint",
    "Timeout",
    "Timestamp",
    "__version__",
    "f32",
    "f64",
    "i16",
    "i32",
    "i64",
    "i8",
    "open",
    "u16",
    "u32",
    "u64",
    "u8",
]
