"""Devices and buffers that are closed."""

from __future__ import annotations

import gc

import hcq
import numpy as np
import pytest
from conftest import CUBINS


def test_a_block_closes_its_device_and_all_that_was_made_of_it():
    with hcq.open("sim", interleave="high") as device:
        assert not device.closed
        buffer, host, queue = device.buffer(np.ones(8, np.float32)), device.host_buffer(8), device.queue()
        program = device.load(CUBINS)
        kernel = program["vecadd"]
        recorded, unbuilt = device.graph(), device.graph()
        node = recorded.launch(kernel, 1, 8, buffer, buffer, buffer, 8)
        time, graph = recorded.timestamp(), recorded.build()
        point = kernel[1, 8](buffer, buffer, buffer, 8)
        launcher = kernel[1, 8]
    assert device.closed and buffer.closed and host.closed and "closed" in repr(device)
    calls = [
        lambda: device.info,
        lambda: device.buffer(4),
        lambda: device.host_buffer(4),
        lambda: device.load(CUBINS),
        lambda: device.free_memory,
        lambda: device.gpu_time,
        lambda: device.gives_way,
        device.queue,
        device.copy_queue,
        device.graph,
        device.memory_map,
        device.clock_pair,
        device.trim,
        lambda: device.reserve_stacks(64),
        buffer.read,
        buffer.wait,
        lambda: memoryview(host),
        queue.submit,
        queue.barrier,
        queue.timestamp,
        lambda: queue.wait_for(point),
        lambda: launcher(buffer, buffer, buffer, 8),
        lambda: program["vecadd"],
        lambda: len(program),
        lambda: kernel.registers,
        lambda: kernel.occupancy(8),
        point.wait,
        lambda: point.done,
        lambda: time.ns,
        graph.replay,
        lambda: graph.patch(node, 3, 4),
        unbuilt.barrier,
        unbuilt.build,
    ]
    for call in calls:
        with pytest.raises(hcq.Closed) as found:
            call()
        assert found.value.code == "HANDLE_FREED" and "closed" in str(found.value)
    # What is known of it without the device.
    assert (kernel.name, kernel.parameter_bytes, graph.launches) == ("vecadd", 28, 1)
    repr([program, kernel, buffer, queue, graph, point])
    device.close()
    buffer.close()


def test_a_device_that_others_view_is_not_closed():
    device = hcq.open("sim")
    view = np.asarray(device.host_buffer(8))
    with pytest.raises(BufferError, match="1 views"):
        device.close()
    assert not device.closed and device.buffer(8).nbytes == 8
    with pytest.raises(BufferError), device:
        pass
    # The exception that ends a block is the one that is seen.
    with pytest.raises(KeyError), device:
        raise KeyError
    del view
    gc.collect()
    device.close()
    assert device.closed


def test_devices_that_are_closed_leave_nothing():
    for _ in range(60):
        with hcq.open("sim") as device:
            buffer = device.buffer(np.ones(1 << 16, np.float32))
            point = device.load(CUBINS)["vecadd"][256, 256](buffer, buffer, buffer, 1 << 16)
            assert (buffer.read() == 2).all()
        with open("/proc/self/maps") as maps:
            count = len(maps.readlines())
    assert count < 2000 and isinstance(point, hcq.SyncPoint)


def endless(device: hcq.Device, queue: hcq.Queue | None = None) -> hcq.SyncPoint:
    """Two blocks that wait for each other 2^30 times."""
    cells, arrived = device.buffer(np.zeros(256, np.uint32)), device.buffer(np.full(1, 1 << 31, np.uint32))
    return device.load(CUBINS)["rule90"][2, 128](cells, cells, arrived, 256, 1 << 30, queue=queue)


def fault(device: hcq.Device, queue: hcq.Queue | None = None) -> hcq.SyncPoint:
    """Reads where nothing is."""
    vecadd = device.load(CUBINS)["vecadd"]
    return vecadd[1, 8](1 << 39, 1 << 39, 1 << 39, 8, queue=queue)


@pytest.mark.parametrize(("work", "error"), [(endless, hcq.Timeout), (fault, hcq.GpuFault)])
def test_what_went_wrong_unseen_is_raised_at_the_end_once(work, error):
    def opened() -> hcq.Device:
        return hcq.open("sim", patience=0.1)

    with pytest.raises(error), opened() as device:
        work(device)
    assert device.closed
    device.close()
    # At the end of a queue; of one that the garbage collector took.
    with opened() as device:
        with pytest.raises(error), device.queue() as queue:
            work(device, queue)
        assert queue.closed
        with pytest.raises(hcq.Closed):
            queue.submit()
        queue.close()
    device = opened()
    work(device, device.queue())
    gc.collect()
    with pytest.raises(error):
        device.close()
    # Another exception goes before it.
    with pytest.raises(KeyError), opened() as device:
        work(device)
        raise KeyError


def test_a_fault_that_was_seen_is_not_raised_again():
    with hcq.open("sim") as device:
        other = device.queue()
        with pytest.raises(hcq.GpuFault):
            fault(device).wait()
        other.close()


def test_parts_of_a_device_are_closed_by_themselves(device):
    x = np.ones(8, np.float32)
    with device.load(CUBINS) as program, device.host_buffer(x) as buffer:
        kernel = program["vecadd"]
        recorded = device.graph()
        recorded.launch(kernel, 1, 8, buffer, buffer, buffer, 8)
        with recorded.build() as graph, device.queue() as queue:
            graph.replay(queue)
            point = queue.submit()
        assert (buffer.read() == 2).all() and point.done
        kernel[1, 8](buffer, buffer, buffer, 8).wait()
    assert program.closed and graph.closed and queue.closed and buffer.closed and not device.closed
    for call in (lambda: program["axpy"], graph.replay, queue.submit, buffer.read):
        with pytest.raises(hcq.Closed):
            call()
    for part in (program, graph, queue, buffer):
        part.close()
