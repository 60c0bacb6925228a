"""Compiles a kernel from PTX with `ptxas`, and launches it.

Without a `ptxas` on the machine it launches the code that was compiled before and committed.
"""

from pathlib import Path

import hcq
import numpy as np

COUNT = 1000
KERNELS = Path(__file__).parents[2] / "hcq/examples/kernels/ptxgen"

# `scale`: multiplies `count` floats by `factor`.
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u32 count, .param .f32 factor)
{
    .reg .pred %done; .reg .b32 %i, %n, %r<3>; .reg .f32 %f, %v; .reg .b64 %x, %at;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %i, %r0, %r1, %r2;
    ld.param.u32 %n, [count]; setp.ge.u32 %done, %i, %n; @%done ret;
    ld.param.u64 %x, [x]; ld.param.f32 %f, [factor]; mul.wide.u32 %at, %i, 4; add.u64 %x, %x, %at;
    ld.global.f32 %v, [%x]; mul.rn.f32 %v, %v, %f; st.global.f32 [%x], %v;
    ret;
}
"""


def main() -> None:
    device = hcq.open()
    try:
        # For the SM of this device.
        program = device.load(hcq.Source(PTX))
    except hcq.NoCompiler:
        program = device.load(KERNELS / f"scale.sm_{device.info.sm}.cubin")

    floats = np.arange(COUNT, dtype=np.float32)
    x = device.buffer(floats)
    program["scale"][-(-COUNT // 128), 128](x, COUNT, 0.5)
    assert (x.read() == 0.5 * floats).all()
    print(f"{COUNT} floats halved")


if __name__ == "__main__":
    main()
