#!/usr/bin/env python3
"""Writes llm/data/codebooks.bin: the codebooks of ggml's IQ types, one after the other.

The source is the package gguf 0.19.0 from PyPI (`pip install gguf==0.19.0`), which has them from ggml-common.h.
An entry is a little-endian word of 16 bits: of eight values two bits each (IQ1, IQ2), of four values four bits
each (IQ3), the first value in the lowest bits. A code is the place of a value in the type's list of values, which
llm/src/codebook.rs has. Run from the repository root.
"""
from pathlib import Path

import gguf
import numpy as np

# In the order of llm/src/codebook.rs. IQ1_M has the codebook of IQ1_S.
TYPES = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]


def entries(name):
    quant = getattr(gguf.quants, name)
    quant.init_grid()
    values = quant.grid.reshape(quant.grid_shape)
    codes = np.searchsorted(quant.grid_map, values).astype(np.uint16)
    assert (np.array(quant.grid_map)[codes] == values).all()
    width = 16 // quant.grid_shape[1]
    return (codes << np.arange(0, 16, width, dtype=np.uint16)).sum(axis=1).astype("<u2")


def main():
    Path("llm/data/codebooks.bin").write_bytes(b"".join(entries(name).tobytes() for name in TYPES))


if __name__ == "__main__":
    main()
