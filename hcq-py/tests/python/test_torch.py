"""Tensors of torch on the CPU: shown where they are, and copied from. Skipped where torch is absent."""

from __future__ import annotations

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")

# Those of both; torch has more, and numpy has no bfloat16.
TYPES = "uint8 int8 bool int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("name", TYPES)
def test_a_tensor_is_the_memory_of_a_buffer(device, name):
    dtype = getattr(torch, name)
    values = (torch.arange(6).reshape(2, 3) % 2).to(dtype)
    buffer = device.host_buffer(values.shape, dtype)
    assert (buffer.dtype, buffer.shape) == (name, (2, 3))
    seen = torch.from_dlpack(buffer)
    assert seen.dtype == dtype and seen.shape == (2, 3)
    seen.copy_(values)
    assert buffer.read_bytes() == bytes(values.view(torch.uint8).flatten().tolist())
    assert torch.equal(torch.from_dlpack(buffer), values)
    gc.collect()
    with pytest.raises(BufferError, match="1 views"):
        buffer.close()
    part = seen[1:]
    del seen
    gc.collect()
    with pytest.raises(BufferError):
        buffer.close()
    del part
    gc.collect()
    buffer.close()


def test_tensors_are_copied_from_and_into(device, vecadd):
    x = torch.arange(8, dtype=torch.float32)
    gaps = torch.arange(16, dtype=torch.float32)[::2]
    a, b, c = device.buffer(x), device.buffer(gaps), device.buffer(x.shape, x.dtype)
    vecadd[1, 8](a, b, c, 8)
    into = torch.zeros(8)
    c.read_into(into)
    assert torch.equal(into, x + gaps) and a.dtype == "float32"
    b.write(x)
    assert (b.read() == x.numpy()).all()
    half = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    buffer = device.host_buffer(half.view(torch.uint8), "bfloat16")
    assert torch.equal(torch.from_dlpack(buffer).reshape(2, 3), half)


def test_what_has_no_memory_to_copy_is_refused(device):
    with pytest.raises((RuntimeError, BufferError)):
        device.buffer(torch.ones(4, requires_grad=True))
    with pytest.raises((BufferError, ValueError)):
        device.buffer(16).read_into(torch.zeros(32)[::2])
    with pytest.raises(BufferError):
        torch.from_dlpack(device.buffer(16))
    assert isinstance(np.asarray(device.buffer(torch.ones(2))), np.ndarray)
