"""Records launches once as a graph, and replays them with one doorbell each, with a patched argument."""

from pathlib import Path

import hcq
import numpy as np

COUNT = 256
# Number of `factor` among the arguments of `axpy(y, x, factor, n)`.
FACTOR = 2
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


def main() -> None:
    device = hcq.open()
    axpy = device.load(CUBINS)["axpy"]
    x = device.buffer(np.ones(COUNT, np.float32))
    y = device.buffer(np.zeros(COUNT, np.float32))

    # y += 1 * x, then y += 10 * x. The barrier lets the second launch see what the first one wrote.
    recorded = device.graph()
    first = recorded.launch(axpy, 2, 128, y, x, 1.0, COUNT)
    recorded.barrier()
    recorded.launch(axpy, 2, 128, y, x, 10.0, COUNT)
    graph = recorded.build()

    # Ten replays add 11 each. Replays of one graph follow each other: no wait is needed between them.
    for _ in range(10):
        graph.replay()
    # From here on the first launch adds 2 * x. Replays that are still running keep the old factor.
    graph.patch(first, FACTOR, 2.0)
    graph.replay()

    expected = 10 * 11 + 12
    assert (y.read() == expected).all()
    print(f"11 replays of {graph.launches} launches: every element is {expected}")


if __name__ == "__main__":
    main()
