"""Exceptions of hcq. Each has a ``code``, as ``hcq.h`` names it without ``HCQ_ERROR_``, and often a ``hint``."""

from __future__ import annotations

import builtins

from .facts import Fault


class Error(Exception):
    """An error of hcq."""

    code: str = "OTHER"
    """The cause, such as ``LAUNCH_ARGUMENTS``."""

    hint: str | None = None
    """Advice in one line."""

    def __str__(self) -> str:
        text = ", ".join(str(argument) for argument in self.args)
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class OpenError(Error):
    """A device, or the settings that it is to be opened with, cannot be used."""


class DriverError(Error):
    """A request of the driver failed."""


class OutOfMemory(Error, builtins.MemoryError):
    """Memory or addresses are used up."""


class RangeError(Error, builtins.ValueError):
    """A range is not inside a buffer, is empty, or cannot lie where it is to lie."""


class Closed(Error, builtins.ValueError):
    """The object, or its device, was closed before."""


class ProgramError(Error):
    """A cubin cannot be loaded."""


class NoKernel(ProgramError, builtins.KeyError):
    """A program has no kernel of that name; the text lists those it has."""


class CompileError(Error):
    """The assembler refused the source; the text has its messages, and the lines they name."""


class NoCompiler(CompileError):
    """There is no assembler, ``ptxas``, in the places that the text lists."""


class LaunchError(Error):
    """A launch, or a node or an argument of a graph, is refused."""


class ArgumentError(LaunchError, builtins.TypeError):
    """An argument is not what the kernel takes there; the text names it, its size and what was given."""


class QueueError(Error):
    """A queue does not take work, or does not complete it."""


class Timeout(QueueError, builtins.TimeoutError):
    """The GPU did not finish in time."""


class ForeignDevice(Error, builtins.ValueError):
    """Objects of two devices do not mix."""


class Forked(Error):
    """The device belongs to the process that this one was forked from."""


class GpuFault(Error):
    """The GPU stopped a kernel. The text is the report; ``fault`` has its parts."""

    fault: Fault


class DeviceLost(GpuFault):
    """An earlier fault, whose report this is, has taken the device; open it again."""
