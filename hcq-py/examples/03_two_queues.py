"""Overlaps copies with launches: a copy queue moves data while a compute queue works on other data.

Submissions of one queue follow each other; between queues nothing is ordered but by `wait_for`.
"""

from pathlib import Path

import hcq
import numpy as np

# Parts that the data goes through the GPU in, and floats of each.
PARTS, COUNT = 8, 1 << 14
BYTES = 4 * COUNT
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


def main() -> None:
    device = hcq.open()
    vecadd = device.load(CUBINS)["vecadd"]

    # Memory of the CPU, which the copy engine reads and writes, and two parts' worth of the GPU's own.
    source = device.host_buffer(np.arange(PARTS * COUNT, dtype=np.float32))
    target = device.host_buffer(PARTS * COUNT, np.float32)
    parts = [device.buffer(COUNT, np.float32) for _ in range(2)]

    copies, launches = device.copy_queue(), device.queue()
    doubled = []
    for part in range(PARTS):
        memory = parts[part % 2]
        # In: after the part that was here before has gone out, which the same queue did earlier.
        copies.copy(source, memory, part * BYTES, 0, BYTES)
        launches.wait_for(copies.submit())
        doubled.append(vecadd[COUNT // 256, 256](memory, memory, memory, COUNT, queue=launches))
        # Out: one part late, so that the copy engine brings the next part in while this one is worked on.
        for done in range(max(part - 1, 0), PARTS if part + 1 == PARTS else part):
            copies.wait_for(doubled[done])
            copies.copy(parts[done % 2], target, 0, done * BYTES, BYTES)
    copies.submit().wait()

    # Both are the CPU's memory: numpy sees them where they are.
    assert (np.asarray(target) == 2 * np.asarray(source)).all()
    print(f"{PARTS * COUNT} floats doubled in {PARTS} parts")


if __name__ == "__main__":
    main()
