"""Runs many dependent steps in one launch: a kernel that stays on the GPU, whose blocks wait for each other.

All blocks have to run at the same time, or those that run wait for ever for those that do not.
"""

from pathlib import Path

import hcq
import numpy as np

# Cells of the automaton "rule 90", a power of two, and its generations.
CELLS, STEPS, THREADS = 1 << 12, 100, 128
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


def main() -> None:
    device = hcq.open()
    rule90 = device.load(CUBINS)["rule90"]

    # As many blocks as there is work for, but never more than the GPU holds at once.
    blocks_per_sm = rule90.blocks_per_sm(THREADS)
    blocks = min(CELLS // THREADS, blocks_per_sm * device.info.sm_count)
    print(f"{blocks} blocks on {device.info.sm_count} SMs")

    cells = np.zeros(CELLS, np.uint32)
    cells[CELLS // 2] = 1
    even, odd = device.buffer(cells), device.buffer(CELLS, np.uint32)
    # The counter that blocks meet at.
    arrived = device.buffer(np.zeros(1, np.uint32))
    rule90[blocks, THREADS](even, odd, arrived, CELLS, STEPS, blocks_per_sm=blocks_per_sm).wait(10)

    for _ in range(STEPS):
        # Each cell becomes the exclusive or of its neighbours, in a ring.
        cells = np.roll(cells, 1) ^ np.roll(cells, -1)
    # An even number of steps.
    assert (even.read() == cells).all()
    print(f"{STEPS} generations of {CELLS} cells in one launch")


if __name__ == "__main__":
    main()
