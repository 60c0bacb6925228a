"""Queues, points, timestamps and graphs."""

from __future__ import annotations

import random

import hcq
import numpy as np
import pytest
from conftest import CUBINS


def ones(device, count=256, value=1):
    return device.buffer(np.full(count, value, np.float32))


def test_recorded_work_runs_when_it_is_submitted(device, vecadd):
    queue = device.queue()
    a, c = ones(device), ones(device, value=0)
    queue.launch(vecadd, 1, 256, a, a, c, 256)
    queue.barrier()
    queue.launch(vecadd, 1, 256, c, c, c, 256)
    assert (c.read() == 0).all()
    point = queue.submit()
    point.wait(timeout=10)
    assert point.done and (c.read() == 4).all()


def test_copies_of_a_copy_queue_follow_points_of_others(device, vecadd):
    launches, copies = device.queue(), device.copy_queue()
    a, c, out = ones(device), ones(device), device.host_buffer(256, "float32")
    for value in (2, 3, 4):
        point = vecadd[1, 256](a, c, c, 256, queue=launches)
        copies.wait_for(point)
        copies.copy(c, out)
        copies.submit().wait()
        assert (np.asarray(out) == value).all()
    copies.copy(a, out, 4 * 10, 4 * 20, 4 * 5)
    copies.submit().wait()
    assert (out.read()[20:25] == 1).all() and out.read()[25] == 4
    with pytest.raises(hcq.QueueError) as found:
        copies.launch(vecadd, 1, 1, a, a, a, 1)
    assert found.value.code == "QUEUE_WRONG_QUEUE"
    with pytest.raises(hcq.RangeError):
        copies.copy(a, out, 4 * 250, 0, 4 * 7)
    with pytest.raises(hcq.RangeError) as found:
        copies.copy(a, a, 0, 4, 8)
    assert found.value.code == "MEMORY_OVERLAP"


def test_times_of_the_gpu_grow(device, vecadd):
    queue, a = device.queue(), ones(device)
    first = queue.timestamp()
    assert first.ns is None
    queue.launch(vecadd, 1, 256, a, a, a, 256)
    second = queue.timestamp()
    queue.submit().wait()
    assert 0 < first.ns <= second.ns <= device.gpu_time
    assert second.since(first) == second.ns - first.ns and first.since(second) == first.ns - second.ns
    foreign = hcq.open("sim").queue()
    with pytest.raises(hcq.ForeignDevice):
        second.since(foreign.timestamp())
    with pytest.raises(hcq.ForeignDevice):
        queue.wait_for(foreign.submit())
    one, two = device.clock_pair(), device.clock_pair()
    assert one.gpu_ns <= two.gpu_ns and one.cpu_ns <= two.cpu_ns and one.error_ns >= 0


def test_a_wait_has_an_end():
    # Blocks that count for a very long time.
    own = hcq.open("sim", patience=0.2)
    rule90 = own.load(CUBINS)["rule90"]
    cells, arrived = own.buffer(np.zeros(256, np.uint32)), own.buffer(np.full(1, 1 << 31, np.uint32))
    point = rule90[2, 128](cells, cells, arrived, 256, 1 << 30)
    for timeout in (0, 0.01, 0.2):
        with pytest.raises(hcq.Timeout) as found:
            point.wait(timeout)
        assert isinstance(found.value, TimeoutError) and found.value.code == "QUEUE_TIMEOUT"
        assert not point.done
    for bad in (-1, float("nan"), float("inf"), -0.001):
        with pytest.raises(ValueError, match="not negative"):
            point.wait(bad)
    with pytest.raises(hcq.Error):
        cells.read()


def test_a_graph_replays_with_patches(device, program):
    x, y, other = ones(device), ones(device, value=0), ones(device, value=5)
    axpy, queue = program["axpy"], device.queue()
    recorded = device.graph()
    before = recorded.timestamp()
    first = recorded.launch(axpy, 2, 128, y, x, 1.0, 256)
    recorded.barrier()
    copied = device.buffer(256, np.float32)
    copy = recorded.copy(y, copied)
    second = recorded.launch(axpy, 2, 128, y, x, 10.0, 256, after=[first])
    recorded.launch(axpy, 2, 128, y, x, 100.0, 256, after=[second, first])
    after = recorded.timestamp()
    graph = recorded.build()
    assert graph.launches == 3 and "node" in repr(first)
    graph.replay().wait()
    assert (y.read() == 111).all() and (copied.read() == 1).all() and before.ns <= after.ns
    graph.patch(first, 1, other, 2.0)
    graph.patch(second, 2, np.float32(0))
    graph.replay(queue)
    graph.replay(queue=queue)
    assert (y.read() == 111 + 2 * 110).all()
    other.close()
    graph.replay().wait()
    assert (y.read() == 111 + 3 * 110).all()

    for index, args, error, says in [
        (2, ("1",), TypeError, "argument 2 of axpy"),
        (2, (np.float64(1),), TypeError, "argument 2 of axpy has 4 bytes, one of 8 was given"),
        (1, (other,), hcq.Closed, "buffer is closed"),
        (3, (1, 2), hcq.ArgumentError, "has 4 arguments, a patch names 2 from number 3 on"),
        (9, (1,), TypeError, "a patch names 1 from number 9 on"),
        (1 << 63, (1,), TypeError, "has 4 arguments"),
        (-1, (1,), OverflowError, None),
    ]:
        with pytest.raises(error, match=says):
            graph.patch(first, index, *args)
    with pytest.raises(hcq.LaunchError) as found:
        graph.patch(copy, 0, x)
    assert found.value.code == "LAUNCH_NOT_A_LAUNCH"
    with pytest.raises(hcq.LaunchError) as found:
        device.graph().build().patch(first, 2, 1.0)
    assert found.value.code == "LAUNCH_FOREIGN_NODE"
    with pytest.raises(hcq.LaunchError):
        device.graph().launch(axpy, 1, 1, y, x, 1.0, 1, after=[first])
    for record in (recorded.barrier, recorded.build, recorded.timestamp, lambda: recorded.copy(x, y)):
        with pytest.raises(ValueError, match="built"):
            record()


def test_random_graphs_against_a_model(device, program):
    """Graphs of launches and copies with barriers, replayed with patches, as numpy computes them."""
    choose = random.Random(5)
    axpy = program["axpy"]
    for _ in range(8):
        models = [np.float32(choose.randrange(5)) * np.ones(64, np.float32) for _ in range(3)]
        buffers = [device.buffer(model) for model in models]
        recorded, steps, nodes = device.graph(), [], []
        for _ in range(choose.randrange(1, 12)):
            to, source = choose.sample(range(3), 2)
            if choose.random() < 0.3:
                nodes.append(recorded.copy(buffers[source], buffers[to]))
                steps.append(["copy", to, source, 0])
            else:
                factor = choose.randrange(-2, 3)
                nodes.append(recorded.launch(axpy, 1, 64, buffers[to], buffers[source], float(factor), 64))
                steps.append(["axpy", to, source, factor])
            recorded.barrier()
        graph = recorded.build()
        for _ in range(3):
            which = choose.randrange(len(steps))
            if steps[which][0] == "axpy":
                steps[which][3] = choose.randrange(-2, 3)
                graph.patch(nodes[which], 2, float(steps[which][3]))
            graph.replay()
            for kind, to, source, factor in steps:
                models[to] = models[source].copy() if kind == "copy" else models[to] + factor * models[source]
        for buffer, model in zip(buffers, models):
            assert (buffer.read() == model).all()


def test_a_queue_that_goes_takes_its_work_along(device, vecadd):
    a = ones(device)
    queue = device.queue()
    point = vecadd[1, 256](a, a, a, 256, queue=queue)
    del queue
    point.wait()
    assert (a.read() == 2).all()
    waits = device.queue()
    waits.wait_for(point)
    waits.submit().wait()
