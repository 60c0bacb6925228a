#!/usr/bin/env python3
"""Many clients of `llm-demo serve` at once, some of which go away, send nonsense or say nothing.

usage: soak.py PROGRAM [--clients 64] [--seconds 60] [-- OPTIONS OF llm-demo serve]

Starts the server (by default the embedded model on the software device) and checks that every answer is
complete and right, that nothing waits or runs afterwards, and that the memory of the server does not grow.
Prints the times to the first token and per token. Needs Python 3.11 and nothing else.
"""
import argparse
import asyncio
import collections
import json
import pathlib
import random
import sys
import time

from server import serving

PROMPTS = ["Once upon a time", "The little fox", "One morning", "Tom had a", "The rain", "She looked in every"]
TOKENS = 12
# Seconds that an answer may take.
LIMIT = 600
# What an allocator keeps.
GROWTH = 24 << 20


def request(path, body, kind="application/json", length=None):
    """The bytes of a request in HTTP 1.0, whose answer ends with the connection."""
    length = len(body) if length is None else length
    head = f"POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


def completion(prompt, **more):
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, **more}
    return request("/v1/completions", json.dumps(body).encode())


class Soak:
    def __init__(self, port):
        self.port = port
        self.expected = {}
        self.counts = collections.Counter()
        self.first, self.next = [], []
        self.wrong = []

    async def open(self, data):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def ask(self, data):
        """Status and body."""
        reader, writer = await self.open(data)
        reply = await asyncio.wait_for(reader.read(), LIMIT)
        writer.close()
        head, _, body = reply.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    async def get(self, path):
        return await self.ask(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())

    def judge(self, prompt, text, what):
        self.counts[what] += 1
        if text != self.expected[prompt]:
            self.wrong.append((what, prompt, text))

    async def whole(self, prompt):
        status, body = await self.ask(completion(prompt))
        if status == 429:
            self.counts["refused, queue full"] += 1
            return await asyncio.sleep(1)
        if status != 200:
            return self.wrong.append(("status", status, body))
        self.judge(prompt, json.loads(body)["choices"][0]["text"], "whole answers")

    async def stream(self, prompt, most=None):
        """Reads a stream; goes away after `most` tokens."""
        begin = last = time.monotonic()
        reader, writer = await self.open(completion(prompt, stream=True))
        text, done, tokens = "", False, 0
        try:
            while line := await asyncio.wait_for(reader.readline(), LIMIT):
                if line.startswith(b"HTTP/") and b" 429 " in line:
                    self.counts["refused, queue full"] += 1
                    return await asyncio.sleep(1)
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    done = True
                    continue
                piece = json.loads(line[6:])["choices"][0]["text"]
                if piece:
                    now = time.monotonic()
                    (self.next if tokens else self.first).append(now - (last if tokens else begin))
                    last, tokens, text = now, tokens + 1, text + piece
                if most is not None and tokens >= most:
                    self.counts["killed in the middle"] += 1
                    return
        finally:
            writer.close()
        if not done:
            return self.wrong.append(("cut stream", prompt, text))
        self.judge(prompt, text, "streams")

    async def killed(self, prompt):
        """Goes away while it waits."""
        _, writer = await self.open(completion(prompt, stream=random.random() < 0.5))
        await asyncio.sleep(random.random())
        writer.close()
        self.counts["killed while waiting"] += 1

    async def nonsense(self):
        bad = random.choice([
            (b"\x00\xff nonsense\r\n\r\n", None),
            (b"GET /../../etc/passwd HTTP/1.0\r\nHost: localhost\r\n\r\n", 404),
            (request("/v1/completions", b"{"), 400),
            (request("/v1/completions", b'{"prompt": "' + b"\xff" * 9 + b'"}'), 400),
            (request("/v1/completions", b'{"prompt": "a", "n": 500}'), 400),
            (request("/v1/completions", b'{"prompt": "a"}', kind="text/plain"), 415),
            (request("/v1/chat/completions", b'{"messages": []}'), 400),
            (request("/v1/completions", b"", length=1 << 30), 413),
        ])
        self.counts["nonsense"] += 1
        try:
            status, body = await self.ask(bad[0])
        except (IndexError, ConnectionError):
            status = None
        if bad[1] is not None and status != bad[1]:
            self.wrong.append(("nonsense", bad, status))

    async def silent(self):
        """Sends half a request."""
        _, writer = await self.open(completion("The")[:-9])
        await asyncio.sleep(random.random() * 3)
        writer.close()
        self.counts["half requests"] += 1

    async def client(self, end):
        while time.monotonic() < end:
            prompt = random.choice(PROMPTS)
            match random.choices(range(6), [6, 3, 1, 1, 1, 1])[0]:
                case 0: await self.stream(prompt)
                case 1: await self.whole(prompt)
                case 2: await self.stream(prompt, random.randrange(1, 6))
                case 3: await self.killed(prompt)
                case 4: await self.nonsense()
                case 5: await self.silent()


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def times(name, values):
    """A line of the report.

    >>> times("per token", [0.002, 0.001])
    'per token    p50       2.0 ms   p99       2.0 ms   of 2'
    >>> times("per token", [])
    'per token    none'
    """
    if not values:
        return f"{name:12} none"
    p50, p99 = (1000 * percentile(values, share) for share in (0.5, 0.99))
    return f"{name:12} p50 {p50:9.1f} ms   p99 {p99:9.1f} ms   of {len(values)}"


async def watch(pid, memory):
    while True:
        memory.append(resident(pid))
        await asyncio.sleep(0.5)


async def run(process, port, clients, seconds):
    soak = Soak(port)
    for prompt in PROMPTS:
        status, body = await soak.ask(completion(prompt))
        assert status == 200, body
        soak.expected[prompt] = json.loads(body)["choices"][0]["text"]
    memory = []
    watching = asyncio.create_task(watch(process.pid, memory))
    end = time.monotonic() + seconds
    await asyncio.gather(*(soak.client(end) for _ in range(clients)))
    for _ in range(LIMIT):
        metrics = (await soak.get("/metrics"))[1].decode()
        if "requests_waiting 0\n" in metrics and "requests_running 0\n" in metrics:
            break
        await asyncio.sleep(0.1)
    else:
        soak.wrong.append(("requests are left", metrics))
    await soak.stream(PROMPTS[0])
    watching.cancel()
    for what, count in sorted(soak.counts.items()):
        print(f"{count:6} {what}")
    for name, values in ("first token", soak.first), ("per token", soak.next):
        print(times(name, values))
    if not soak.first:
        soak.wrong.append(("no stream had any text",))
    # A third of the time fills caches and pools.
    early = max(memory[:max(1, len(memory) // 3)])
    late = max(memory[len(memory) // 3:])
    print(f"memory       at most {early / 1e6:.1f} MB in the first third, {late / 1e6:.1f} MB afterwards")
    if late - early > GROWTH:
        soak.wrong.append(("memory", early, late))
    return soak.wrong


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("--clients", type=int, default=64)
    arguments.add_argument("--seconds", type=float, default=60)
    # What follows "--" is for the server.
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, options = sys.argv[1:at], sys.argv[at + 1:]
    given = arguments.parse_args(own)
    options = options or ["--device", "sim"]
    with serving(given.program, *options) as (process, base):
        wrong = asyncio.run(run(process, int(base.rsplit(":", 1)[1]), given.clients, given.seconds))
    for what in wrong[:20]:
        print("WRONG", what)
    print(f"{len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
