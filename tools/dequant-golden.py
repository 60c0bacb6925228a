#!/usr/bin/env python3
"""Writes llm/tests/data/dequant.json: random blocks of quantized weights with the values they stand for.

The oracle is the package gguf 0.19.0 from PyPI (`pip install gguf==0.19.0`). Scales are drawn so that zero,
negative and subnormal ones appear. Run from the repository root.
"""
import json
from pathlib import Path

import gguf
import numpy as np

BLOCKS = 6
# Byte offsets of the f16 scales inside a block.
SCALES = {"Q4_0": [0], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
SCALES |= {"Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q3_K": [108], "IQ4_NL": [0], "MXFP4": []}
SCALES |= {"Q2_K": [80, 82], "IQ4_XS": [0]}
SCALES |= {name: [0] for name in ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]}
# The four nibbles of the scale are the upper ones of the last words.
NIBBLES = {"IQ1_M": [48, 50, 52, 54]}
TYPES = ["F32", "F16", "BF16", *SCALES, *NIBBLES]
SCALE_VALUES = np.array([1e-5, -3e-6, 0.0123, -1.5, 6e-8, 0.0], dtype=np.float16)


def main():
    rng = np.random.default_rng(7)
    blocks = {}
    for name in TYPES:
        ty = gguf.GGMLQuantizationType[name]
        values, size = gguf.GGML_QUANT_SIZES[ty]
        if name in SCALES or name in NIBBLES:
            data = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
            for at in SCALES.get(name, []):
                data[:, at : at + 2] = rng.permutation(SCALE_VALUES).view(np.uint8).reshape(-1, 2)
            for i, at in enumerate(NIBBLES.get(name, [])):
                nibble = SCALE_VALUES.view(np.uint16) >> (4 * i) & 15
                data[:, at + 1] = data[:, at + 1] & 15 | (nibble << 4).astype(np.uint8)
        else:
            normal = rng.standard_normal(64).astype(np.float32)
            normal[:4] = [0.0, -0.0, 6e-8, -1e30 if name != "F16" else -65504.0]
            if name == "F16":
                data = normal.astype(np.float16).view(np.uint8)
            elif name == "BF16":
                data = (normal.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            else:
                data = normal.view(np.uint8)
        typed = data.view(np.float32) if name == "F32" else data.view(np.float16) if name == "F16" else data
        decoded = gguf.quants.dequantize(typed, ty).astype("<f4")
        blocks[name] = {"bytes": data.tobytes().hex(), "f32": decoded.tobytes().hex()}
    sizes = {t.name: [t.value, *gguf.GGML_QUANT_SIZES[t]] for t in gguf.GGML_QUANT_SIZES}
    out = Path("llm/tests/data/dequant.json")
    out.write_text(json.dumps({"source": "gguf 0.19.0", "sizes": sizes, "blocks": blocks}, indent=1) + "\n")


if __name__ == "__main__":
    main()
