"""Buffers: what goes in comes out, and whoever sees their memory keeps it."""

from __future__ import annotations

import array
import ctypes
import gc
import random
import sys
import weakref

import hcq
import numpy as np
import pytest

# numpy before 2.1 asks for no version of DLPack, and shows such memory for reading alone.
OLD_NUMPY = tuple(map(int, np.__version__.split(".")[:2])) < (2, 1)
TYPES = "uint8 int8 bool int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4)])
def test_an_array_comes_back_and_is_seen_as_it_was(device, dtype, shape):
    values = (np.arange(np.prod(shape)) % 2).astype(dtype).reshape(shape)
    for buffer in (device.buffer(values), device.host_buffer(values)):
        assert (buffer.shape, buffer.dtype, buffer.nbytes, len(buffer)) == (shape, dtype, values.nbytes, shape[0])
        read = buffer.read()
        assert read.dtype == values.dtype and (read == values).all()
        assert buffer.read_bytes() == values.tobytes()
    for seen in (np.asarray(buffer), np.from_dlpack(buffer)):
        assert seen.shape == shape and seen.dtype == values.dtype and (seen == values).all()
        assert not seen.flags.owndata and (seen.flags.writeable or OLD_NUMPY)
    assert memoryview(buffer).tobytes() == values.tobytes()


def test_what_has_memory_or_a_shape_makes_a_buffer(device):
    gaps = np.arange(20, dtype=np.int32).reshape(4, 5)[::2, 1::2]
    cases = [
        (b"abc", (3,), "uint8"),
        (bytearray(b"abcd"), (4,), "uint8"),
        (memoryview(b"abcde")[::2], (3,), "uint8"),
        (array.array("f", [1, 2, 3]), (3,), "float32"),
        ((ctypes.c_int16 * 4)(1, 2, 3, 4), (4,), "int16"),
        (gaps, (2, 2), "int32"),
        (gaps.T, (2, 2), "int32"),
        (np.float64(7), (1,), "float64"),
    ]
    for data, shape, dtype in cases:
        buffer = device.buffer(data)
        assert (buffer.shape, buffer.dtype) == (shape, dtype)
        assert buffer.read_bytes() == np.ascontiguousarray(data).tobytes()
    assert device.buffer(b"\0\0\x80\x3f" * 3, "float32").read().tolist() == [1, 1, 1]
    assert device.buffer(10).shape == (10,)
    assert device.buffer((3, 4), np.float16).nbytes == 24
    assert device.buffer((5,), float).dtype == "float64"


def test_an_array_without_sides_is_one_element(device):
    for data in (np.array(5, np.uint16), np.array(5.5, np.float32), memoryview(np.array(7, np.int8))):
        for buffer in (device.buffer(data), device.host_buffer(data)):
            assert buffer.shape == () and buffer.nbytes == data.itemsize and buffer.read().shape == ()
            assert buffer.read() == data
            with pytest.raises(TypeError, match="no len"):
                len(buffer)
    seen = np.asarray(buffer)
    assert seen.shape == () and not seen.flags.owndata and np.from_dlpack(buffer).shape == ()
    assert device.buffer((), np.float32).shape == ()


@pytest.mark.parametrize(
    ("data", "dtype", "error", "says"),
    [
        (np.zeros(0), None, hcq.RangeError, "at least one byte"),
        ((3, 0), "float32", hcq.RangeError, "at least one byte"),
        (-5, None, OverflowError, "data: -5"),
        (np.zeros(4, [("a", "O")]), None, TypeError, "data: "),
        (4, [("a", "O")], TypeError, "dtype: "),
        (np.zeros(2, "f4"), "f8", TypeError, "data: the elements are float32, not float64"),
        ([1.5, 2.5], None, TypeError, r"numpy.array\(list\)"),
        ([1, 2, 3], None, TypeError, "a tuple for a shape"),
        ([], None, TypeError, r"numpy.array\(list\)"),
        ((1.5, 2.5), None, TypeError, "numpy array"),
        (2**70, None, OverflowError, "1 to 2"),
        (1 << 5000, None, OverflowError, "an integer of 5001 bits"),
        ("text", None, TypeError, "no memory to copy from"),
        (None, None, TypeError, "no memory to copy from"),
        (-1, None, OverflowError, None),
        (0, None, hcq.RangeError, "at least one byte"),
        (1 << 62, "float64", hcq.OutOfMemory, None),
        (4, "float33", TypeError, "float33"),
        (4, object, TypeError, "object"),
        (b"abc", "int16", ValueError, "3 bytes"),
        (np.zeros(2, "datetime64[s]"), None, TypeError, "no memory"),
        (np.zeros(2, ">i4"), None, TypeError, ">i"),
    ],
)
def test_what_makes_no_buffer_is_named(device, data, dtype, error, says):
    with pytest.raises(error, match=says):
        device.buffer(data, dtype)


@pytest.mark.parametrize("fields", [[("x", "f4"), ("n", "u2"), ("at", "i4", (2, 2))], {"names": ["a"], "formats": ["f8"]}])
@pytest.mark.parametrize("align", [False, True])
def test_structures_keep_their_type(device, fields, align):
    dtype = np.dtype(fields, align=align)
    values = np.frombuffer(random.Random(2).randbytes(6 * dtype.itemsize), dtype).reshape(2, 3)
    for buffer in (device.buffer(values), device.host_buffer(values), device.buffer(values.tobytes(), dtype)):
        assert buffer.dtype == dtype and buffer.nbytes == values.nbytes
        assert buffer.read().dtype == dtype and buffer.read().tobytes() == values.tobytes()
    empty = device.host_buffer(values.shape, dtype)
    seen = np.asarray(empty)
    assert seen.dtype == dtype and seen.shape == (2, 3) and not seen.flags.owndata
    seen[:] = values
    assert empty.read_bytes() == values.tobytes()
    with pytest.raises(BufferError, match="no structures"):
        empty.__dlpack__()


def test_bfloat16_is_that_of_ml_dtypes(device, program):
    types = pytest.importorskip("ml_dtypes")
    values = np.arange(6).astype(types.bfloat16).reshape(2, 3)
    for data in (values, values[:, ::2], values.T, np.array(1.5, types.bfloat16), types.bfloat16(1.5)):
        for buffer in (device.buffer(data), device.host_buffer(data), device.buffer(data, "bfloat16")):
            read = buffer.read()
            assert buffer.dtype == "bfloat16" and read.dtype == types.bfloat16
            assert buffer.read_bytes() == np.asarray(data).tobytes() and (read == data).all()
    buffer = device.buffer(values.shape, types.bfloat16)
    buffer.write(values)
    into = np.zeros_like(values)
    buffer.read_into(into)
    assert (into == values).all()
    with pytest.raises(BufferError, match="contiguous"):
        buffer.read_into(np.zeros((3, 2), types.bfloat16).T)
    with pytest.raises(hcq.ArgumentError, match="argument 2 of axpy has 4 bytes, one of 2 was given"):
        program["axpy"][1, 1](buffer, buffer, types.bfloat16(1.5), 0)


def test_without_ml_dtypes_arrays_of_bfloat16_name_it(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="ml_dtypes: install it, or read_into an array of uint16"):
        device.buffer(3, "bfloat16").read()


def test_bfloat16_has_no_array_of_numpy(device):
    buffer = device.host_buffer((2, 3), "bfloat16")
    assert (buffer.dtype, buffer.nbytes) == ("bfloat16", 12)
    buffer.write(np.arange(6, dtype=np.uint16))
    assert buffer.read_bytes() == np.arange(6, dtype=np.uint16).tobytes()
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(buffer)


def test_targets_and_sources_are_named(device):
    buffer = device.buffer(8)
    for call, name in [
        (lambda: buffer.read_into(8), "target: "),
        (lambda: buffer.read_into(b"12345678"), "target: "),
        (lambda: buffer.write(8.5j), "data: "),
        (lambda: device.load(8), "code: "),
        (lambda: device.buffer(4096, address=1 << 60), "address: "),
        (lambda: hcq.open("sim", patience=-1), "patience: "),
        (lambda: hcq.open("sim", profile="x = y"), "profile: "),
        (lambda: hcq.open("sim", interleave="highest"), "interleave is "),
        (lambda: buffer.wait(-1), "timeout: "),
    ]:
        with pytest.raises((TypeError, ValueError, BufferError, hcq.OpenError)) as found:
            call()
        assert str(found.value).startswith(name), found.value


def test_a_buffer_is_a_model_of_bytes(device):
    choose = random.Random(7)
    for make in (device.buffer, device.host_buffer):
        model = bytearray(choose.randbytes(1000))
        buffer = make(model)
        for _ in range(300):
            offset, size = choose.randrange(1100), choose.randrange(300)
            data = choose.randbytes(size)
            into = bytearray(size)
            fits = offset + size <= len(model)
            if fits:
                buffer.write(data, offset)
                model[offset : offset + size] = data
                assert buffer.read_bytes(offset, size) == data
                buffer.read_into(into, offset)
                assert into == data
                assert buffer.read_bytes() == model
            else:
                for call in (
                    lambda: buffer.write(data, offset),
                    lambda: buffer.read_bytes(offset, size),
                    lambda: buffer.read_into(into, offset),
                ):
                    with pytest.raises(hcq.RangeError) as found:
                        call()
                    assert found.value.code == "MEMORY_OUT_OF_BOUNDS"


def test_targets_of_reads_are_writable_and_in_one_piece(device):
    buffer = device.buffer(b"abcdefgh")
    into = np.zeros((2, 4), np.uint8)
    buffer.read_into(into)
    assert into.tobytes() == b"abcdefgh"
    for bad in (b"12345678", into[:, ::2], np.broadcast_to(np.uint8(0), (8,))):
        with pytest.raises((BufferError, ValueError)):
            buffer.read_into(bad)
    with pytest.raises(TypeError):
        buffer.read_into(8)


@pytest.mark.parametrize("see", [memoryview, np.asarray, np.from_dlpack, lambda buffer: np.frombuffer(buffer, np.uint8)])
def test_a_view_keeps_its_buffer_and_keeps_it_from_being_freed(device, see):
    buffer = device.host_buffer(np.arange(8, dtype=np.uint8))
    view = see(buffer)
    with pytest.raises(BufferError, match="1 views"):
        buffer.close()
    part = view[2:4]
    del view
    gc.collect()
    with pytest.raises(BufferError):
        buffer.close()
    gone = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert gone() is not None
    # The buffer's memory is the only one that it is.
    buffer = gone()
    buffer.write(b"M", 2)
    assert part[0] == 77
    del part
    gc.collect()
    buffer.close()
    del buffer
    gc.collect()
    assert gone() is None


def test_a_capsule_that_nobody_takes_gives_its_view_back(device):
    buffer = device.host_buffer(16)
    for version in (None, (0, 8), (1, 0), (1, 9)):
        capsule = buffer.__dlpack__(max_version=version)
        with pytest.raises(BufferError):
            buffer.close()
        del capsule
    gc.collect()
    with pytest.raises(BufferError):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(2, 0))
    assert buffer.__dlpack_device__() == (1, 0)
    buffer.close()


def test_gpu_memory_is_not_shown(device):
    buffer = device.buffer(16)
    for see in (memoryview, np.from_dlpack):
        with pytest.raises((TypeError, BufferError)):
            see(buffer)


def test_a_closed_buffer_is_an_error_wherever_it_goes(device, vecadd):
    for make in (device.buffer, device.host_buffer):
        buffer, other = make(64), device.buffer(64)
        place = buffer.at(4)
        buffer.close()
        assert buffer.closed and "closed" in repr(buffer)
        calls = [
            buffer.read,
            buffer.read_bytes,
            lambda: buffer.at(0),
            lambda: buffer.write(b"1"),
            lambda: buffer.read_into(bytearray(1)),
            lambda: buffer.set_name("x"),
            lambda: buffer.__dlpack__(),
            lambda: buffer.__dlpack_device__(),
            lambda: vecadd[1, 1](buffer, other, other, 1),
            lambda: vecadd[1, 1](other, place, other, 1),
            lambda: device.queue().copy(buffer, other),
            lambda: device.queue().copy(other, buffer),
            lambda: device.graph().copy(other, buffer),
            lambda: device.graph().launch(vecadd, 1, 1, other, other, buffer, 1),
        ]
        for call in calls:
            with pytest.raises(hcq.Closed) as found:
                call()
            assert found.value.code == "HANDLE_FREED"
    with pytest.raises(hcq.Closed):
        memoryview(buffer)


def test_memory_goes_back_and_an_address_is_kept(device):
    before = device.free_memory
    for _ in range(20):
        device.buffer(64 << 20)
    gc.collect()
    device.trim()
    assert device.free_memory > before - (64 << 20)
    there = device.buffer(4096, address=0x20_0000_0000)
    assert there.address == 0x20_0000_0000 and there.at(8).address == there.address + 8
    with pytest.raises(hcq.RangeError):
        device.buffer(4096, address=0x20_0000_0000)
    assert any(mapping.address == there.address for mapping in device.memory_map())


def test_classes_are_made_by_devices_alone():
    for name in ("Buffer", "HostBuffer", "BufferAt", "Device", "Program", "Kernel", "Queue", "Graph", "SyncPoint"):
        kind = getattr(hcq, name)
        for args in ((), (1,), (kind,)):
            with pytest.raises(TypeError):
                kind(*args)
        with pytest.raises(TypeError):
            kind.__new__(kind)
