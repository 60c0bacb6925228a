#!/usr/bin/env python3
"""Requests per second of a server with OpenAI's interface, by clients that ask one request after the other.

usage: load.py URL [--clients 1,8,32,64] [--seconds 5] [--words 100] [--tokens 128]

Prompts are random words, texts are streamed. Prints a row for each number of clients: requests per second and
tokens of texts per second, the time to the first chunk, and the time between two tokens: at `llm-demo serve` by
its /metrics, at another server between chunks. Needs Python 3.11 and nothing else.
"""
import argparse
import asyncio
import json
import random
import re
import time
import urllib.parse
import urllib.request

WORDS = "the a small old house rain fox boy farm lantern morning room day cold bright found looked every walked tree".split()
BUCKET = re.compile(r'^llm_demo_time_per_token_seconds_bucket\{le="([^"]+)"\} (\d+)', re.MULTILINE)


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


class Client:
    """Asks until the end, and counts what it gets."""

    def __init__(self, url, options, number):
        self.url, self.options = url, options
        self.random = random.Random(number)
        self.requests = self.chunks = 0
        self.first, self.between = [], []

    async def ask(self):
        prompt = " ".join(self.random.choices(WORDS, k=self.options.words))
        body = {"prompt": prompt, "max_tokens": self.options.tokens, "temperature": 0, "stream": True}
        data = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port)
        head = "POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        begin = last = time.perf_counter()
        status = await reader.readline()
        assert b" 200" in status, status
        count = 0
        async for line in reader:
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                (self.between if count else self.first).append(now - (last if count else begin))
                last, count = now, count + 1
        writer.close()
        self.requests, self.chunks = self.requests + 1, self.chunks + count

    async def run(self, end):
        while time.perf_counter() < end:
            await self.ask()


def metrics(url):
    """The histogram of the times between two tokens; `None` at another server."""
    try:
        with urllib.request.urlopen(f"{url.geturl()}/metrics", timeout=10) as answer:
            return [(float(most), int(count)) for most, count in BUCKET.findall(answer.read().decode())] or None
    except OSError:
        return None


async def measure(url, options, clients):
    before = metrics(url)
    begin = time.perf_counter()
    all_clients = [Client(url, options, number) for number in range(clients)]
    await asyncio.gather(*(client.run(begin + options.seconds) for client in all_clients))
    seconds = time.perf_counter() - begin
    after = metrics(url)
    requests = sum(client.requests for client in all_clients)
    first = [time for client in all_clients for time in client.first]
    if before and after:
        counts = [(most, count - old) for (most, count), (_, old) in zip(after, before)]
        tokens, what = counts[-1][1] + requests, "tokens, at most"
        p99 = next(most for most, count in counts if count >= 0.99 * counts[-1][1])
    else:
        tokens, what = sum(client.chunks for client in all_clients), "chunks"
        p99 = quantile([time for client in all_clients for time in client.between], 0.99)
    print(f"{clients:7} {requests / seconds:11.1f} {tokens / seconds:9.0f} {1e3 * quantile(first, 0.5):10.1f} "
          f"{1e3 * quantile(first, 0.99):10.1f} {1e3 * p99:10.1f} {what}")


parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
parser.add_argument("url", type=urllib.parse.urlparse, help="http://127.0.0.1:PORT")
parser.add_argument("--clients", default="1,8,32,64", help="numbers of clients")
parser.add_argument("--seconds", type=float, default=5, help="time for each of them")
parser.add_argument("--words", type=int, default=100, help="words of a prompt")
parser.add_argument("--tokens", type=int, default=128, help="tokens of a text")
options = parser.parse_args()
print("clients  requests/s  tokens/s   first p50        p99  next p99 in ms")
for clients in map(int, options.clients.split(",")):
    asyncio.run(measure(options.url, options, clients))
