"""Faults of the GPU are exceptions with the report; the process goes on."""

from __future__ import annotations

import re

import hcq
import pytest
from conftest import CUBINS, ROOT

COUNT = 1 << 20


def provoke() -> tuple[hcq.Device, hcq.Buffer, hcq.GpuFault]:
    """A device that a launch past the end of a buffer has stopped."""
    device = hcq.open("sim")
    vecadd = device.load(CUBINS)["vecadd"]
    buffers = [device.buffer(COUNT, "float32") for _ in range(3)]
    tail = 4 * (COUNT - 256)
    with pytest.raises(hcq.GpuFault) as found:
        vecadd[2, 256](*(buffer.at(tail) for buffer in buffers), 512).wait()
    return device, buffers[0], found.value


def test_the_report_names_kernel_place_and_cause():
    device, buffer, error = provoke()
    fault = error.fault
    assert (error.code, fault.kind, fault.kernel, fault.nearest) == ("FAULT", "MMU", "vecadd", "buffer")
    assert fault.address == buffer.address + buffer.nbytes
    assert (fault.nearest_address, fault.nearest_size, fault.nearest_distance) == (buffer.address, buffer.nbytes, 1)
    assert fault.instruction == "LDG.E R2, [R2.64]" and fault.notifier == 31 and fault.offset == 0x1E0
    assert str(error) == f"{fault.report}\n  hint: {error.hint}"
    assert re.match(r"the GPU stopped: access to unmapped memory at 0x\w+ \(1 byte past the end", fault.report)
    for part in ("invalid pte", "likely causes", f"{fault.address:#x}"):
        assert part in fault.account, fault.account
    assert not re.search("\x1b", fault.account)


def test_the_device_is_lost_with_the_same_report_and_another_one_opens():
    device, buffer, error = provoke()
    for call in (buffer.read, lambda: device.buffer(64), device.queue, lambda: device.load(CUBINS)):
        with pytest.raises(hcq.DeviceLost) as found:
            call()
        assert found.value.code == "LOST" and found.value.fault == error.fault
    buffer.close()
    assert hcq.open("sim").buffer(b"abc").read_bytes() == b"abc"


def test_codes_are_those_of_the_c_header():
    """Those that the other tests expect, and every class has a text."""
    header = (ROOT / "hcq-c/include/hcq.h").read_text()
    names = set(re.findall(r"HCQ_ERROR_(\w+)", header))
    expected = set()
    for path in (ROOT / "hcq-py/tests/python").glob("test_*.py"):
        expected |= set(re.findall(r'code == "(\w+)"', path.read_text()))
    own = {code for code in expected if code.startswith("COMPILE_")}
    assert expected - own <= names and len(expected) > 12
    for kind in vars(hcq.errors).values():
        if isinstance(kind, type) and issubclass(kind, hcq.Error):
            assert kind.__doc__


def test_refusals_of_opening_say_what_to_try(monkeypatch):
    with pytest.raises(hcq.OpenError, match="auto, nvgpu, rm or sim") as found:
        hcq.open("cuda")
    assert found.value.code == "OPEN_UNKNOWN_SELECTOR" and "HCQ_DEVICE" in found.value.hint
    monkeypatch.setenv("HCQ_DEVICE", "nonsense")
    with pytest.raises(hcq.OpenError, match="nonsense"):
        hcq.open()
    monkeypatch.setenv("HCQ_DEVICE", "sim")
    assert hcq.open().info.backend == "sim"
    for options in ({"patience": -1}, {"spin": float("nan")}, {"profile": "release = never"}):
        with pytest.raises(ValueError, match=next(iter(options)) if "profile" not in options else "never"):
            hcq.open("sim", **options)
    for options in ({"patient": 1}, {"patience": "1"}, {"keep_freed": 1.5}):
        with pytest.raises(TypeError):
            hcq.open("sim", **options)
    opened = hcq.open(
        "sim",
        patience=5,
        spin=1e-4,
        keep_freed=0,
        kernel_copies_from=1 << 20,
        switch_limit=1,
        timeslice=0.002,
        conservative=True,
        gpu_cache=True,
        chain_launches=False,
        profile="release = host",
    )
    assert opened.info.gpu_cache is True
