"""Launches: arguments are what the kernel's parameters take, or an error says why not."""

from __future__ import annotations

import ctypes
import random
import struct

import hcq
import numpy as np
import pytest
from conftest import CUBINS, KERNELS

COUNT = 1000


def test_a_launch_adds(device, vecadd):
    x = np.arange(COUNT, dtype=np.float32)
    a, b, c = device.buffer(x), device.host_buffer(x), device.buffer(x.shape, x.dtype)
    point = vecadd[4, 256](a, b, c, COUNT)
    assert point.wait() is None and point.done
    assert (c.read() == 2 * x).all()
    # From the middle on, on a queue of its own, with sides as tuples.
    queue = device.queue()
    vecadd[(2, 1), (256, 1, 1)](c.at(2000), c.at(2000), c.at(2000), 500, queue=queue)
    assert (c.read() == np.where(x < 500, 2 * x, 4 * x)).all()


def test_kernels_say_what_they_take(program, vecadd):
    assert sorted(program) == sorted(program.keys()) == ["axpy", "rule90", "vecadd"]
    assert len(program) == 3 and "axpy" in program and "saxpy" not in program
    assert vecadd.parameters == [(0, 8), (8, 8), (16, 8), (24, 4)] and vecadd.parameter_bytes == 28
    assert (vecadd.name, vecadd.static_shared, vecadd.local_bytes, vecadd.max_threads) == ("vecadd", 0, 0, 1024)
    assert vecadd.registers > 0 and vecadd.code_bytes > 0 and vecadd.address > 0
    assert vecadd.blocks_per_sm(1024) == 1 and vecadd.blocks_per_sm(2000) == 0
    found = vecadd.occupancy(256)
    assert found.blocks_per_sm * 8 == found.warps_per_sm <= found.max_warps_per_sm
    with pytest.raises(hcq.NoKernel, match="axpy") as found:
        program["saxpy"]
    assert found.value.code == "PROGRAM_NO_KERNEL" and isinstance(found.value, KeyError)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (3.0, 3.0),
        (0.1, np.float32(0.1)),
        (np.float32(2.5), 2.5),
        (hcq.f32(2.5), 2.5),
        (struct.pack("<f", 2.5), 2.5),
        (np.array(2.5, np.float32), 2.5),
        (float("inf"), float("inf")),
        # A number without a point is an integer: the bits of 0x40400000 are those of 3.
        (0x40400000, 3.0),
    ],
)
def test_a_parameter_takes_what_has_its_size(device, program, factor, expected):
    x, y = device.buffer(np.ones(8, np.float32)), device.buffer(np.zeros(8, np.float32))
    program["axpy"][1, 8](y, x, factor, 8)
    assert (y.read() == np.float32(expected)).all()


class Holder(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p)]


class PackedHolder(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("text", ctypes.c_char_p)]


class Swapped(ctypes.BigEndianStructure):
    _fields_ = [("count", ctypes.c_uint32)]


class PackedSwapped(ctypes.BigEndianStructure):
    _pack_ = 1
    _fields_ = [("count", ctypes.c_uint32)]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({3: None}, TypeError, "argument 3 of vecadd has 4 bytes, one of 8 was given"),
        ({3: b""}, hcq.ArgumentError, "argument 3 of vecadd has 4 bytes, one of 0 was given"),
        ({1: np.float32(1)}, hcq.LaunchError, "argument 1 of vecadd has 8 bytes, one of 4 was given"),
        ({3: "8"}, TypeError, "argument 3 of vecadd: a str is no argument"),
        ({3: np.int64(8)}, TypeError, "argument 3 of vecadd has 4 bytes, one of 8 was given"),
        ({3: ctypes.c_double(8)}, TypeError, "argument 3 of vecadd has 4 bytes, one of 8 was given"),
        ({3: b"12345"}, TypeError, "argument 3 of vecadd has 4 bytes, one of 5 was given"),
        ({3: 1 << 32}, OverflowError, "4294967296 does not fit into 4 bytes"),
        ({3: -(1 << 31) - 1}, OverflowError, "does not fit into 4 bytes"),
        ({3: 10**30}, OverflowError, "does not fit"),
        ({3: 1e39}, OverflowError, "does not fit into a float of 4 bytes"),
        ({3: 1j}, TypeError, "complex"),
        ({3: [8]}, TypeError, "list"),
        ({0: np.zeros(8)}, TypeError, r"device.buffer\(array\)"),
        ({0: 1.0 + (1 << 60), 3: object()}, TypeError, "object"),
        ({3: lambda: 8}, TypeError, "function"),
        ({3: object()}, TypeError, "an object is no argument"),
        ({3: 10**5000}, OverflowError, "an integer of 16610 bits does not fit"),
        ({3: 1e300}, OverflowError, "1e300 does not fit"),
        ({0: ctypes.pointer(ctypes.c_uint32(3))}, TypeError, "argument 0 of vecadd: an address of the CPU"),
        ({0: ctypes.c_char_p(b"x")}, TypeError, "an address of the CPU"),
        ({0: ctypes.c_wchar_p("x")}, TypeError, "an address of the CPU"),
        ({0: ctypes.CFUNCTYPE(None)(int)}, TypeError, "an address of the CPU"),
        ({0: Holder(b"x")}, TypeError, "an address of the CPU"),
        ({0: PackedHolder(b"x")}, TypeError, "an address of the CPU"),
        ({3: np.array(5, ">u4")}, TypeError, "order of another machine"),
        ({3: np.array((5,), [("a", ">u4")])[()]}, TypeError, "order of another machine"),
        ({3: Swapped(5)}, TypeError, "order of another machine"),
        ({3: PackedSwapped(5)}, TypeError, "order of another machine"),
        ({3: np.str_("a")}, TypeError, "a text"),
        ({3: np.ma.masked}, TypeError, "a masked value"),
    ],
)
def test_what_a_parameter_does_not_take_is_named(device, vecadd, change, error, says):
    buffer = device.buffer(64)
    args = [buffer, buffer, buffer, 8]
    for index, value in change.items():
        args[index] = value
    with pytest.raises(error, match=says):
        vecadd[1, 8](*args)


def test_an_address_of_the_gpu_is_a_void_pointer(device, vecadd):
    buffer = device.buffer(np.ones(8, np.float32))
    vecadd[1, 8](ctypes.c_void_p(buffer.address), buffer, buffer, 8).wait()
    assert (buffer.read() == 2).all()


def test_too_few_and_too_many_are_counted(device, vecadd):
    buffer = device.buffer(64)
    for args in ((), (buffer,), (buffer,) * 3, (buffer,) * 3 + (1, 1)):
        with pytest.raises(TypeError, match=f"takes 4 arguments, of 8, 8, 8, 4 bytes; {len(args)} were given") as found:
            vecadd[1, 8](*args)
        assert found.value.code == "LAUNCH_ARGUMENT_COUNT" and "every parameter" in found.value.hint


def test_a_structure_of_all_parameters_is_taken_for_all(device, vecadd):
    class Parameters(ctypes.Structure):
        _fields_ = [("a", ctypes.c_uint64), ("b", ctypes.c_uint64), ("c", ctypes.c_uint64), ("n", ctypes.c_uint32)]
        _pack_ = 4

    a, c = device.buffer(np.full(8, 3, np.float32)), device.buffer(8, np.float32)
    whole = Parameters(a.address, a.address, c.address, 8)
    for argument in (whole, bytes(whole)):
        c.write(np.zeros(8, np.float32))
        vecadd[1, 8](argument).wait()
        assert (c.read() == 6).all()
    with pytest.raises(hcq.ArgumentError, match="takes 4 arguments"):
        vecadd[1, 8](bytes(whole)[:-1])


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ((0, 1), hcq.LaunchError),
        ((1, 0), hcq.LaunchError),
        ((1, 1025), hcq.LaunchError),
        ((1, (1, 1, 65)), hcq.LaunchError),
        ((1 << 31, 1), hcq.LaunchError),
        (((1, 1 << 16), 1), hcq.LaunchError),
        ((-1, 1), TypeError),
        ((1 << 32, 1), TypeError),
        ((1.5, 1), TypeError),
        (((1, 1, 1, 1), 1), TypeError),
        (((), 1), TypeError),
        (("4", 1), TypeError),
        (4, TypeError),
        ((4, 1, 1), TypeError),
    ],
)
def test_shapes_that_cannot_be_launched_are_refused(device, vecadd, shape, error):
    buffer = device.buffer(64)
    with pytest.raises(error) as found:
        vecadd[shape](buffer, buffer, buffer, 0)
    if error is TypeError and isinstance(shape, tuple) and len(shape) == 2:
        assert str(found.value).startswith("block: " if shape[0] == 1 else "grid: ")


def test_options_of_a_launch_are_checked(device, vecadd):
    buffer = device.buffer(64)
    with pytest.raises(hcq.LaunchError) as found:
        vecadd[1, 1](buffer, buffer, buffer, 0, shared=1 << 20)
    assert found.value.code == "LAUNCH_LIMIT"
    for options in ({"shared": -1}, {"shared": 1 << 32}, {"queue": 3}, {"stream": 1}):
        with pytest.raises((TypeError, OverflowError)):
            vecadd[1, 1](buffer, buffer, buffer, 0, **options)


def test_random_arguments_against_a_model(device, program):
    """axpy over random parts of a buffer, with random factors, as numpy computes it."""
    choose = random.Random(3)
    axpy = program["axpy"]
    model = np.arange(256, dtype=np.float32)
    x = np.arange(256, dtype=np.float32)[::-1].copy()
    y, other = device.buffer(model), device.buffer(x)
    for _ in range(60):
        to, at = choose.randrange(256), choose.randrange(256)
        count = choose.randrange(257 - max(to, at))
        factor = np.float32(choose.choice([0, 1, -2, 0.5]))
        value = choose.choice([factor, float(factor), hcq.f32(factor), factor.tobytes()])
        size = choose.choice([count, np.uint32(count), hcq.i32(count), count.to_bytes(4, "little")])
        axpy[2, 128](y.at(4 * to), other.at(4 * at), value, size)
        model[to : to + count] += factor * x[at : at + count]
    assert (y.read() == model).all()


def test_objects_of_two_devices_do_not_mix(device, vecadd):
    other = hcq.open("sim")
    mine, foreign = device.buffer(64), other.buffer(64)
    for call in (
        lambda: vecadd[1, 1](mine, foreign, mine, 1),
        lambda: vecadd[1, 1](mine, mine, mine, 1, queue=other.queue()),
        lambda: device.queue().copy(mine, foreign),
        lambda: other.graph().launch(vecadd, 1, 1, mine, mine, mine, 1),
    ):
        with pytest.raises(hcq.ForeignDevice) as found:
            call()
        assert found.value.code == "FOREIGN_DEVICE"


def test_programs_are_loaded_from_bytes_paths_and_lists(device):
    for code in (CUBINS[1], str(CUBINS[1]), CUBINS[1].read_bytes(), bytearray(CUBINS[1].read_bytes()), tuple(CUBINS)):
        assert "vecadd" in device.load(code)
    with pytest.raises(hcq.ProgramError, match="sm_90") as found:
        device.load(CUBINS[2])
    assert found.value.code == "CUBIN_WRONG_SM" and "nvcc" in found.value.hint
    with pytest.raises(hcq.ProgramError) as found:
        device.load([CUBINS[2], CUBINS[2]])
    assert found.value.code == "CUBIN_NONE_FITS"
    with pytest.raises(hcq.ProgramError):
        device.load([])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        device.load("/nowhere/a.cubin")
    with pytest.raises(IsADirectoryError):
        device.load(KERNELS)
    for bad in (7, None, np.zeros(3)):
        with pytest.raises(TypeError):
            device.load(bad)


def test_garbage_is_no_cubin(device):
    """Cubins with random mistakes load or are refused, and nothing else."""
    choose = random.Random(11)
    good = CUBINS[1].read_bytes()
    refused = 0
    for round in range(400):
        bad = bytearray(good)
        for _ in range(choose.randrange(1, 9)):
            bad[choose.randrange(0x400 if round % 2 else len(bad))] = choose.randrange(256)
        if round % 5 == 0:
            del bad[choose.randrange(len(bad)) :]
        try:
            program = device.load(bytes(bad))
            for name in program:
                repr(program[name]), program[name].occupancy(128)
        except hcq.Error as error:
            assert isinstance(error, (hcq.ProgramError, hcq.OutOfMemory)) and str(error)
            refused += 1
    assert refused > 100
    for bad in (b"", b"\x7fELF", choose.randbytes(4096), b".version 7.0\n.target sm_87"):
        with pytest.raises(hcq.ProgramError):
            device.load(bad)
