"""What calls of hcq answer with: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Info:
    """A device's description. Numbers come from the driver."""

    name: str
    """Marketing or chip name, such as ``ga10b``."""
    backend: str
    """The driver that serves it: ``nvgpu``, ``rm`` or ``sim``."""
    sm: int
    """The number of ``sm_NN``, such as 87."""
    sm_count: int
    """Streaming multiprocessors."""
    max_warps_per_sm: int
    """Resident warps of an SM."""
    max_shared_per_block: int
    """Bytes of shared memory that a block can have."""
    memory: int
    """Bytes of memory that the GPU can use."""
    unified_memory: bool
    """Whether buffers are the CPU's own memory."""
    driver_version: str
    """Version of the driver, as far as it reports one."""
    max_clock_hz: int | None
    """Highest clock of the SMs, where the driver reports it."""
    gpu_cache: bool | None
    """Whether the level-2 cache may keep buffers, where that is for the library to say."""
    compute_class: int
    """Class of the compute engine, such as 0xc7c0."""
    copy_class: int
    """Class of the copy engine."""
    channel_class: int
    """Class of the channel."""


@dataclass(frozen=True)
class Fault:
    """The report of a fault. What is not known is None; on a Jetson that may be the address."""

    kind: str
    """The kind, such as ``MMU`` or ``MISALIGNED_ADDRESS``: as ``hcq.h`` names it without ``HCQ_FAULT_``."""
    code: int | None
    """The code that goes with the kind: the MMU's fault type, an SM's error code."""
    address: int | None
    """The address accessed."""
    kernel: str | None
    """The kernel that was running."""
    in_flight: list[str]
    """If the kernel is not known: those that had not ended."""
    pc: int | None
    """Program counter."""
    offset: int | None
    """Bytes from the start of the kernel to the program counter."""
    instruction: str | None
    """The instruction there."""
    nearest: str | None
    """The object that the nearest mapping is: ``buffer``, ``program``, ..."""
    nearest_address: int | None
    """Its GPU address."""
    nearest_size: int | None
    """Its length in bytes."""
    nearest_distance: int | None
    """Bytes from its end (positive) or its start (negative) to the address; 0 if it contains it."""
    explanation: list[str]
    """The software GPU's account: block, warp and lanes."""
    account: str | None
    """What ``nvdiag`` prints of it: what happened, where, likely causes, and what to try."""
    notifier: int
    """The driver's error notifier."""
    log: list[str]
    """Lines of the kernel log about it."""
    core: str | None
    """The GPU core dump that was written of it (``HCQ_CORE``)."""
    report: str
    """All of it in one sentence, which is the exception's text."""


@dataclass(frozen=True)
class Occupancy:
    """How full an SM is."""

    blocks_per_sm: int
    """Blocks that it holds at once."""
    warps_per_sm: int
    """Warps of those."""
    max_warps_per_sm: int
    """Warps that it can hold."""
    limit: str
    """What holds no more."""


@dataclass(frozen=True)
class ClockPair:
    """The clocks of GPU and CPU at one moment."""

    gpu_ns: int
    """The GPU's clock, from which timestamps are taken."""
    cpu_ns: int
    """``time.monotonic_ns``."""
    error_ns: int
    """Largest difference of the two moments."""


@dataclass(frozen=True)
class Mapping:
    """A part of a device's address space."""

    address: int
    """First GPU address."""
    size: int
    """Length in bytes."""
    what: str
    """The object that lies there, such as ``buffer``."""
