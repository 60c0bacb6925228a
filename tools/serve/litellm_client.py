#!/usr/bin/env python3
"""The package litellm against `llm-demo serve` with the embedded model.

usage: litellm_client.py PROGRAM     the path of llm-demo; needs litellm, see requirements.txt
"""
import asyncio
import importlib.metadata
import json
import os
import sys

import jsonschema
from pydantic import BaseModel, ConfigDict

from server import STORY, fails, serving

# Before litellm is imported: it asks the network for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

MESSAGES = [{"role": "user", "content": "Once upon a time"}]
GO = {"type": "function", "function": {
    "name": "go", "description": "Walk to a place",
    "parameters": {"type": "object", "properties": {"place": {"enum": ["house", "forest"]}},
                   "required": ["place"], "additionalProperties": False}}}


class Walk(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: int
    forward: bool


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def check(model, **server):
    server = dict(model=model, num_retries=0, **server)
    ask = dict(messages=MESSAGES, temperature=0, max_tokens=12, **server)
    answer = litellm.completion(**ask)
    assert answer.choices[0].message.content == STORY and answer.usage.total_tokens == 17, answer
    chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **ask))
    assert text_of(chunks) == STORY and chunks[-1].usage.completion_tokens == 12, chunks[-1]
    answers = asyncio.run(gathered(ask))
    assert [answer.choices[0].message.content for answer in answers] == [STORY] * 3
    assert len(litellm.completion(n=2, **ask).choices) == 2
    tokens = litellm.completion(logprobs=True, top_logprobs=2, **ask).choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == STORY

    answer = litellm.embedding(input=["Once upon a time", "The little fox"], **server)
    assert [len(entry["embedding"]) for entry in answer.data] == [len(answer.data[0]["embedding"])] * 2
    too_long = {**ask, "messages": [{"role": "user", "content": "very " * 3000}]}
    fails(litellm.ContextWindowExceededError, lambda: litellm.completion(**too_long))
    fails(litellm.AuthenticationError, lambda: litellm.completion(**{**ask, "api_key": "wrong"}))


async def gathered(ask):
    return await asyncio.gather(*[litellm.acompletion(**ask) for _ in range(3)])


def check_openai(**server):
    """Schemas, which other providers change, and the interfaces that litellm has for OpenAI's alone."""
    ask = dict(messages=MESSAGES, model="openai/story", temperature=0, max_tokens=12, **server)
    warm = {**ask, "temperature": 1.2, "seed": 3, "max_tokens": 120}
    answer = litellm.completion(tools=[GO], tool_choice="required", parallel_tool_calls=False, **warm).choices[0]
    [call] = answer.message.tool_calls
    assert answer.finish_reason == "tool_calls", answer
    jsonschema.validate(json.loads(call.function.arguments), GO["function"]["parameters"])
    told = [*MESSAGES, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "You are there."}]
    assert litellm.completion(tools=[GO], **{**ask, "messages": told}).choices[0].message.content
    walk = litellm.completion(response_format=Walk, **warm).choices[0].message.content
    Walk.model_validate_json(walk)

    ask = dict(model="openai/story", temperature=0, **server)
    # It asks for 16 tokens at least.
    answer = litellm.responses(input="Once upon a time", max_output_tokens=16, **ask)
    assert answer.output[0].content[0].text.startswith(STORY), answer
    ask["model"] = "text-completion-openai/story"
    answer = litellm.text_completion(prompt=["Once upon a time"] * 2, max_tokens=12, **ask)
    assert [choice.text for choice in answer.choices] == [STORY] * 2, answer


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with serving(sys.argv[1], "--device", "sim", "--alias", "story", "--api-key", "secret") as (_, base):
        server = dict(api_base=f"{base}/v1", api_key="secret", timeout=120)
        for provider in "openai", "hosted_vllm":
            check(f"{provider}/story", **server)
        check_openai(**server)
    print(f"litellm {importlib.metadata.version('litellm')}: passed")


main()
