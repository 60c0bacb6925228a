#!/usr/bin/env python3
"""Open WebUI's server before `llm-demo serve` with the embedded model: what its pages ask it goes on to the model.

usage: open_webui_client.py PROGRAM OPEN_WEBUI     the paths of llm-demo and of open-webui, which has many packages
and an environment of its own; needs requests
"""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import requests

from server import STORY, serving

ASK = {"model": "story", "messages": [{"role": "user", "content": "Once upon a time"}], "temperature": 0,
       "max_tokens": 12}


def eventually(call):
    """What `call` returns once it is something."""
    until = time.monotonic() + 300
    while not (found := call()):
        assert time.monotonic() < until, "nothing within 300 s"
        time.sleep(1)
    return found


@contextlib.contextmanager
def open_webui(program, base, folder):
    """Open WebUI without accounts and without the network, with texts embedded by the server at `base`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    api = {"BASE_URL": f"{base}/v1", "KEY": "secret"}
    options = {"DATA_DIR": str(folder), "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none", "OFFLINE_MODE": "true",
               "HF_HUB_OFFLINE": "1", "ENABLE_OLLAMA_API": "false", "ANONYMIZED_TELEMETRY": "false",
               "RAG_EMBEDDING_ENGINE": "openai", "RAG_EMBEDDING_MODEL": "story",
               **{f"{use}OPENAI_API_{name}": value for use in ("", "RAG_") for name, value in api.items()}}
    with open(folder / "log", "w", encoding="utf-8") as log:
        command = [program, "serve", "--host", "127.0.0.1", "--port", port]
        process = subprocess.Popen(command, env={**os.environ, **options}, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: is_ready(process, url, folder / "log"))
        yield url
    finally:
        process.terminate()
        process.wait()


def is_ready(process, url, log):
    assert process.poll() is None, log.read_text()[-2000:]
    with contextlib.suppress(requests.ConnectionError):
        return requests.get(f"{url}/health", timeout=60).ok
    return False


def check(url):
    session = requests.Session()

    def post(path, **body):
        answer = session.post(f"{url}/api{path}", timeout=300, **body)
        assert answer.ok, answer.text
        return answer

    token = post("/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
    session.headers["Authorization"] = f"Bearer {token}"
    models = session.get(f"{url}/api/models", timeout=60).json()["data"]
    assert [model["id"] for model in models] == ["story"], models
    answer = post("/chat/completions", json=ASK).json()
    assert answer["choices"][0]["message"]["content"] == STORY, answer
    events = post("/chat/completions", json={**ASK, "stream": True}).text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if event.startswith("data: {")]
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk.get("choices")]
    assert "".join(texts) == STORY, events
    for task in "title", "tags", "follow_up", "queries", "emoji", "moa":
        body = {**ASK, "prompt": "Once", "type": "web_search", "responses": ["Once"]}
        assert post(f"/v1/tasks/{task}/completions", json=body).json()["choices"], task
    embedding = post("/embeddings", json={"model": "story", "input": ["Once upon a time"]}).json()
    assert len(embedding["data"][0]["embedding"]) > 100, embedding

    # A file is divided, embedded and found again.
    text = "Once upon a time there was a fox."
    name = post("/v1/files/", files={"file": ("story.txt", text, "text/plain")}).json()["id"]

    def processed():
        status = session.get(f"{url}/api/v1/files/{name}", timeout=60).json()["data"]["status"]
        assert status != "failed", status
        return status == "completed"

    eventually(processed)
    query = {"collection_names": [f"file-{name}"], "query": "a fox", "k": 1}
    found = post("/v1/retrieval/query/collection", json=query).json()
    assert found["documents"] == [[text]], found
    return session.get(f"{url}/api/version", timeout=60).json()["version"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with (serving(sys.argv[1], "--device", "sim", "--alias", "story", "--api-key", "secret") as (_, base),
          tempfile.TemporaryDirectory() as folder,
          open_webui(sys.argv[2], base, pathlib.Path(folder)) as url):
        version = check(url)
    print(f"Open WebUI {version}: passed")


main()
