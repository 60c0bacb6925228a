"""Makes a kernel run past the end of its buffers, and prints what hcq says about it."""

from pathlib import Path

import hcq

# Floats in a buffer: 4 MiB, whole pages of every GPU, so that the first byte past the end is not mapped.
COUNT = 1 << 20
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels"
CUBINS = [KERNELS / f"examples.sm_{sm}.cubin" for sm in (80, 87, 90)]


def main() -> None:
    device = hcq.open()
    vecadd = device.load(CUBINS)["vecadd"]
    # Two blocks of 256 threads around the end: the arguments start 256 elements before it.
    tail = 4 * (COUNT - 256)
    a, b, c = (device.buffer(COUNT, "float32") for _ in range(3))
    try:
        vecadd[2, 256](a.at(tail), b.at(tail), c.at(tail), 512).wait()
    except hcq.GpuFault as error:
        print(error.fault.report)
        # The device is lost with the channel; the process goes on, and may open another.
        assert error.fault.kernel == "vecadd" and error.fault.kind == "MMU"
    else:
        raise SystemExit("the kernel ran past its buffers unnoticed")


if __name__ == "__main__":
    main()
