"""numpy's ways of giving counts, types and arrays."""

import ctypes
import subprocess
import sys

import hcq
import numpy as np
import pytest


def test_objects_are_no_bytes(device):
    buffer = device.buffer(np.zeros(4))
    fields = np.zeros(1, [("Offset", "f4"), ("object", object)])
    for objects in [np.zeros(4, object), fields, (ctypes.py_object * 4)()]:
        with pytest.raises(BufferError, match="Python objects"):
            buffer.read_into(objects)
        with pytest.raises(TypeError):
            buffer.write(objects)
    names = np.zeros(1, [("O", "f8"), ("xOy", "f8")])
    buffer.read_into(names)
    assert not any(names[0])


def test_numbers_of_numpy_are_counts(device):
    count = np.array([2, 3]).sum()
    assert device.buffer(count, np.float32).shape == (5,)
    assert device.buffer(np.prod((3, 4)), "float32").shape == (12,)
    assert device.buffer(np.float32(1.5)).read() == [1.5]


def test_types_are_named_as_in_numpy_and_nothing_is_read_as_another(device):
    for name in ["f4", "<f4", "single", np.dtype("f4"), np.float32]:
        assert device.buffer(4, name).dtype == "float32"
    for other in [">f4", np.dtype(">f4"), "M8[s]", "no type"]:
        with pytest.raises(TypeError, match="is not known here"):
            device.buffer(4, other)
    with pytest.raises(TypeError, match="astype"):
        device.buffer(np.ones(4, np.float32), np.float64)
    assert device.buffer(np.ones(4, np.float32).tobytes(), np.float32).read().tolist() == [1] * 4


def test_numpy_reads_a_buffer_as_an_array(device):
    buffer = device.buffer(np.arange(4))
    assert np.asarray(buffer).tolist() == [0, 1, 2, 3]
    assert np.asarray(buffer, np.float32).dtype == np.float32
    buffer.close()
    with pytest.raises(hcq.Closed):
        np.asarray(buffer)


def test_a_text_is_no_path(device):
    with pytest.raises(ValueError, match="hcq.Source"):
        device.load(".version 7.0\n.target sm_80\n")


DAEMON = """
import threading, time, hcq
buffer = hcq.open("sim").buffer(4)
def work():
    while True: buffer.read_bytes()
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""


def test_threads_in_calls_do_not_disturb_the_end():
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", DAEMON], timeout=60).returncode == 0
