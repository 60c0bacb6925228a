"""Threads, forks and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import hcq
import numpy as np
import pytest
from conftest import CUBINS

ENDLESS = f"""
import hcq, numpy as np, sys, time
device = hcq.open("sim", patience=0.2)
queue = device.queue()
cells, arrived = device.buffer(np.zeros(256, np.uint32)), device.buffer(np.full(1, 1 << 31, np.uint32))
rule90 = device.load({[str(path) for path in CUBINS]!r})["rule90"]
point = rule90[2, 128](cells, cells, arrived, 256, 1 << 30, queue=queue)
"""


def in_fork(run) -> int:
    """The code that a forked child leaves with: 0 where `run` raises nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    for _ in range(200):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_threads_share_a_device_and_a_queue(device, program, vecadd):
    shared = device.queue()
    x = np.arange(256, dtype=np.float32)
    ones = device.buffer(np.ones(256, np.float32))

    def work(number: int) -> None:
        own, mine = device.queue(), device.buffer(x + number)
        recorded = device.graph()
        recorded.launch(vecadd, 1, 256, mine, ones, mine, 256)
        graph = recorded.build()
        for _ in range(10):
            vecadd[1, 256](mine, ones, mine, 256, queue=shared)
            graph.replay(shared).wait()
            vecadd[1, 256](mine, ones, mine, 256).wait()
            own.wait_for(graph.replay())
            own.submit().wait()
        assert (mine.read() == x + number + 40).all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_freeing_beside_reading_is_an_error_at_most(device):
    for _ in range(30):
        buffer = device.host_buffer(np.full(1 << 16, 7, np.uint8))
        started = threading.Barrier(3)

        def read() -> None:
            started.wait()
            try:
                while True:
                    assert (buffer.read() == 7).all()
                    np.asarray(buffer)[0] = 7
            except (hcq.Closed, TypeError, ValueError):
                assert buffer.closed

        def free() -> None:
            started.wait()
            while not buffer.closed:
                try:
                    buffer.close()
                except BufferError:
                    pass

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(read), pool.submit(read), pool.submit(free)]:
                done.result(30)


def test_waits_let_other_threads_run():
    device = hcq.open("sim", patience=0.1)
    cells, arrived = device.buffer(np.zeros(256, np.uint32)), device.buffer(np.full(1, 1 << 31, np.uint32))
    point = device.load(CUBINS)["rule90"][2, 128](cells, cells, arrived, 256, 1 << 30)
    ticks = []

    def tick() -> None:
        while len(ticks) < 10:
            ticks.append(time.monotonic())
            time.sleep(0.01)

    other = threading.Thread(target=tick)
    began = time.monotonic()
    other.start()
    with pytest.raises(hcq.Timeout):
        point.wait(1.0)
    other.join()
    assert ticks[-1] < began + 1.0


def test_a_fork_has_no_device_and_opens_its_own(device, program, vecadd):
    own = hcq.open("sim")
    kernel = own.load(CUBINS)["vecadd"]
    a, host, queue = own.buffer(b"1234"), own.host_buffer(np.arange(4096, dtype=np.uint8)), own.queue()
    small = [own.host_buffer(np.full(100, i, np.uint8)) for i in range(5)]
    point = kernel[1, 1](a, a, a, 1, queue=queue)
    recorded = own.graph()
    recorded.launch(kernel, 1, 1, a, a, a, 1)
    graph = recorded.build()
    views = [np.asarray(buffer) for buffer in [host, *small]]

    def child() -> None:
        calls = [
            a.read_bytes,
            host.read,
            lambda: a.write(b"1"),
            lambda: own.buffer(4),
            lambda: own.load(CUBINS),
            lambda: kernel[1, 1](a, a, a, 1),
            lambda: kernel[1, 1](a, a, a, 1, queue=queue),
            queue.submit,
            queue.timestamp,
            own.queue,
            point.wait,
            graph.replay,
            own.trim,
            lambda: own.graph().build(),
        ]
        for call in calls:
            try:
                call()
            except hcq.Forked as error:
                assert error.code == "FORKED"
            else:
                raise AssertionError(call)
        for call in (lambda: memoryview(host), lambda: np.from_dlpack(host)):
            try:
                call()
            except BufferError:
                pass
            else:
                raise AssertionError(call)
        # Views of the parent's memory are memory of the child's own.
        for view in views:
            assert not view.any()
            view[:] = 3
        views.clear()
        host.close()
        fresh = hcq.open("sim")
        x = fresh.buffer(np.ones(4, np.float32))
        fresh.load(CUBINS)["vecadd"][1, 4](x, x, x, 4).wait()
        assert (x.read() == 2).all() and (np.asarray(fresh.host_buffer(b"ab")) == list(b"ab")).all()

    assert in_fork(child) == 0
    point.wait()
    assert (views[0] == np.arange(4096) % 256).all() and (views[2] == 1).all()
    assert a.read_bytes(0, 0) == b""


def test_forks_beside_threads_that_submit_do_not_hang(device, vecadd):
    a = device.buffer(np.zeros(64, np.float32))
    queue, ended = device.queue(), threading.Event()

    def submit() -> None:
        while not ended.is_set():
            vecadd[1, 64](a, a, a, 64, queue=queue).wait()

    def child() -> None:
        for call in (queue.submit, a.read, lambda: vecadd[1, 64](a, a, a, 64, queue=queue)):
            try:
                call()
            except hcq.Forked:
                pass
            else:
                raise AssertionError("no error")

    threads = [threading.Thread(target=submit) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_fork(child) == 0
    finally:
        ended.set()
        for thread in threads:
            thread.join()


WAITS = """
point.wait(60)
cells.read()
cells.read_bytes()
cells.read_into(bytearray(4))
cells.write(b'1234')
cells.wait()
np.asarray(cells)
[queue.wait_for(point) or queue.submit() for _ in range(10_000)]
[launch(cells, cells, arrived, 256, 1 << 30) for _ in range(10_000)]
device.queue()
device.copy_queue()
first_launch()
first_replay()
"""

INTERRUPTED = """
import os, signal, threading
kernel = device.load(CUBINS)["rule90"]
launch = lambda *args: kernel[2, 128](*args, queue=queue)
recorded = device.graph()
first_launch, first_replay = lambda: kernel[2, 128](cells, cells, arrived, 256, 0), recorded.build().replay
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(queue.timestamp()))
for wait in WAITS.strip().splitlines():
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    try:
        eval(wait)
    except KeyboardInterrupt:
        print("interrupted" if time.monotonic() - began < 1.5 else "late", flush=True)
print(len(handled))
"""


def test_ctrl_c_ends_whatever_waits_and_handlers_of_others_may_use_the_device():
    code = f"CUBINS, WAITS = {[str(path) for path in CUBINS]!r}, {WAITS!r}\n"
    code += ENDLESS.replace("patience=0.2", "patience=2") + INTERRUPTED
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stderr, done.stdout.split()) == ("", ["interrupted"] * 13 + ["13"])


SUBINTERPRETER = """
import sys
try:
    import _interpreters
    create = lambda: _interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as _interpreters
    create = lambda: _interpreters.create(isolated=False) if sys.version_info >= (3, 10) else _interpreters.create()
if FIRST:
    import hcq
_interpreters.run_string(create(), SCRIPT)
"""

IMPORT = """
try:
    import hcq
except ImportError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("first", [False, True])
def test_a_subinterpreter_is_told_that_it_is_one(first):
    script = f"import sys; sys.path[:] = {sys.path!r}\n{IMPORT}"
    code = f"FIRST, SCRIPT = {first}, {script!r}\n{SUBINTERPRETER}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and "is a subinterpreter" in done.stdout


def test_an_interpreter_ends_with_everything_open():
    code = ENDLESS + "view = np.asarray(device.host_buffer(64)); capsule = device.host_buffer(8).__dlpack__()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
