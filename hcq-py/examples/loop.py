"""A control loop, as `hcq-bench loop` measures it: at each tick a kernel runs on 64 floats, and the result is read.

    python loop.py --hz 1000 --seconds 10 [--load] [--histogram]

A tick is one of the monotonic clock. One that would begin while the last one runs is missed, and counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hcq
import numpy as np
import numpy.typing as npt

VALUES = 64
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


class Addition:
    """A graph of one launch, which adds two vectors, and its memory: that of the CPU, seen by numpy where it is."""

    def __init__(self, device: hcq.Device) -> None:
        constants = np.arange(VALUES, dtype=np.float32)
        self.buffers = [device.host_buffer(constants) for _ in range(3)]
        self.input, _, self.result = (np.asarray(buffer) for buffer in self.buffers)
        recorded = device.graph()
        recorded.launch(device.load(CUBINS)["vecadd"], 1, VALUES, *self.buffers, VALUES)
        self.graph = recorded.build()

    def tick(self, value: float) -> None:
        """One tick's work: a new value in, the sums out."""
        self.input[0] = value
        self.graph.replay().wait(10)
        sums = self.result.copy()
        assert sums[0] == value and sums[-1] == 2 * (VALUES - 1), sums


def ticks(addition: Addition, hz: int, seconds: float) -> tuple[npt.NDArray[np.int64], int]:
    """Runs the ticks. Returns how late each began and how long it took in ns, and the number of those left out."""
    period = 1_000_000_000 // hz
    count = max(int(seconds * 1e9) // period, 1)
    times, missed, tick = [], 0, 0
    start = time.monotonic_ns() + period
    while tick < count:
        due = start + tick * period
        time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        began = time.monotonic_ns()
        addition.tick(float(tick))
        ended = time.monotonic_ns()
        times.append((max(began - due, 0), ended - began))
        # A tick whose time has passed is no later one's.
        after = max((ended - start) // period + 1, tick + 1)
        missed += min(after, count) - min(tick + 1, count)
        tick = after
    return np.array(times), missed


def busy() -> None:
    """Works in the level-2 cache until it is ended."""
    words = np.ones(1 << 18, np.uint64)
    while True:
        words *= np.uint64(0x9E3779B97F4A7C15)


@contextmanager
def load(wanted: bool) -> Iterator[None]:
    """Gives every core something else to do."""
    context = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0)) if wanted else 0
    others = [context.Process(target=busy, daemon=True) for _ in range(cores)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.terminate()


def row(name: str, ns: npt.NDArray[np.int64]) -> str:
    """One line of the table."""
    ordered = np.sort(ns) / 1e3
    least, median, p99, p9999, most = (
        ordered[min(len(ordered) * part // 10_000, len(ordered) - 1)] for part in (0, 5000, 9900, 9999, 10_000)
    )
    return (
        f"  {name:<22} min {least:>9.2f}  p50 {median:>9.2f}  p99 {p99:>9.2f}  p99.99 {p9999:>9.2f}  max {most:>9.2f}  us"
    )


def histogram(ns: npt.NDArray[np.int64]) -> Iterator[str]:
    """Lines of a histogram whose bins double, in us."""
    bins = np.floor(np.log2(np.maximum(ns / 1e3, 1))).astype(int)
    for bin in range(bins.min(), bins.max() + 1):
        count = int((bins == bin).sum())
        bar = "#" * -(-50 * count // len(ns))
        yield f"  {1 << bin:>7} .. {2 << bin:>7} us  {count:>7}  {bar}"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Measures a control loop.")
    parser.add_argument("--hz", type=int, default=1000, help="ticks per second")
    parser.add_argument("--seconds", type=float, default=10, help="how long")
    parser.add_argument("--load", action="store_true", help="every core has other work")
    parser.add_argument("--histogram", action="store_true", help="draw the responses")
    given = parser.parse_args()
    if given.hz < 1 or not given.seconds > 0:
        parser.error("--hz and --seconds are more than 0")

    device = hcq.open()
    info = device.info
    print(f"{info.name} ({info.backend} backend, driver {info.driver_version})")
    addition = Addition(device)
    # What is made once is made before the first tick.
    for i in range(100):
        addition.tick(float(i))
    with load(given.load):
        times, missed = ticks(addition, given.hz, given.seconds)
    kind = "every core busy" if given.load else "no other load"
    print(f"{given.hz} Hz, {kind}: {len(times)} ticks, {missed} missed")
    print(row("wake-up", times[:, 0]))
    print(row("launch + wait + read", times[:, 1]))
    print(row("response", times.sum(axis=1)))
    if given.histogram:
        print(*histogram(times.sum(axis=1)), sep="\n")


if __name__ == "__main__":
    main()
