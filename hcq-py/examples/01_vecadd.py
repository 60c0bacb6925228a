"""Adds two vectors: allocate, load a kernel, launch it, read the result."""

from pathlib import Path

import hcq
import numpy as np

COUNT = 1000
# Machine code for several SM versions: the device takes what runs on it.
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


def main() -> None:
    # The device: HCQ_DEVICE=nvgpu (Jetson), rm (desktop GPU), sim (software), or the first that works.
    device = hcq.open()
    print(f"{device.info.name} ({device.info.backend})")
    vecadd = device.load(CUBINS)["vecadd"]

    values = np.arange(COUNT, dtype=np.float32)
    a, b = device.buffer(values), device.buffer(values)
    c = device.buffer(values.shape, values.dtype)

    # One thread for each element, in blocks of 256. Arguments are checked against the kernel's parameters.
    vecadd[-(-COUNT // 256), 256](a, b, c, COUNT)
    # Waits for the launch, which names the buffer.
    sums = c.read()
    assert (sums == 2 * values).all(), sums
    print(f"{COUNT} sums are right")


if __name__ == "__main__":
    main()
