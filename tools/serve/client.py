#!/usr/bin/env python3
"""The official client of OpenAI's interface against `llm-demo serve` with the embedded model.

usage: client.py PROGRAM     the path of llm-demo; needs openai and jsonschema, see requirements.txt
"""
import json
import sys

import jsonschema
import openai

from server import STORY, serving


def fails(kind, call):
    """The error that `call` raises, which has to be of `kind`."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


CHARACTER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["child", "fox", "squirrel"]},
        "age": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 120}, {"type": "null"}]},
        "friends": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/name"}},
    },
    "required": ["name", "kind", "age", "friends"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string", "maxLength": 12}},
}


def check_schemas(chat, messages):
    """Texts that have to be JSON, with jsonschema as the judge."""
    def of(schema):
        return {"type": "json_schema", "json_schema": {"name": "character", "strict": True, "schema": schema}}

    ask = dict(model="story", messages=messages, temperature=1.5, max_completion_tokens=300,
               response_format=of(CHARACTER))
    for seed in range(4):
        choice = chat(seed=seed, **ask).choices[0]
        assert choice.finish_reason == "stop", choice
        jsonschema.validate(json.loads(choice.message.content), CHARACTER)
        chunks = chat(seed=seed, stream=True, **ask)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    choice = chat(**{**ask, "max_completion_tokens": 2}).choices[0]
    assert choice.finish_reason == "length", choice
    choice = chat(**{**ask, "response_format": {"type": "json_object"}}).choices[0]
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content), dict), choice
    wrong = {"type": "object", "properties": {"a": {"type": "x"}}}
    error = fails(openai.BadRequestError, lambda: chat(**{**ask, "response_format": of(wrong)}))
    assert error.param == "response_format" and "#/properties/a" in error.message, error.body


def check(client):
    messages = [{"role": "user", "content": "Once upon a time"}]
    chat, text = client.chat.completions.create, client.completions.create

    assert [model.id for model in client.models.list()] == ["story"]
    assert client.models.retrieve("story").object == "model"

    answer = chat(model="story", messages=messages, max_completion_tokens=12, temperature=0)
    assert answer.choices[0].message.content == STORY, answer
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 12, 17)
    assert answer.usage.prompt_tokens_details.cached_tokens == 0

    chunks = list(chat(model="story", messages=messages, max_tokens=12, temperature=0, stream=True,
                       stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == STORY
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices

    answer = text(model="story", prompt="Once upon a time", max_tokens=30, temperature=0, stop=["named", "zebra"])
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (", a cheerful boy ", "stop"), answer
    pieces = text(model="story", prompt="Once upon a time", max_tokens=12, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == STORY

    sampled = dict(model="story", prompt="The", max_tokens=12, temperature=1.5, top_p=0.9,
                   extra_body={"cache_prompt": False, "top_k": 0, "min_p": 0})
    first, again, other = (text(seed=seed, **sampled).choices[0].text for seed in (7, 7, 8))
    assert first == again and first != other, (first, other)
    biased = text(model="story", prompt="Once", max_tokens=3, temperature=0, logit_bias={"626": 100})
    assert biased.choices[0].text == "OnceOnceOnce", biased

    check_schemas(chat, messages)

    error = fails(openai.BadRequestError, lambda: chat(model="story", messages=messages, n=2))
    assert error.param == "n" and error.type == "invalid_request_error", error.body
    fails(openai.BadRequestError, lambda: chat(model="story", messages=messages, logprobs=True))
    error = fails(openai.BadRequestError, lambda: chat(model="story", messages=messages, max_tokens="many"))
    assert error.param == "max_tokens", error.body
    error = fails(openai.BadRequestError, lambda: text(model="story", prompt="very " * 3000))
    assert error.code == "context_length_exceeded", error.body
    assert fails(openai.NotFoundError, lambda: text(model="gpt-4", prompt="a")).code == "model_not_found"
    fails(openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list())

    # Who closes a stream cancels it: the next answer does not wait for a thousand tokens.
    with text(model="story", prompt="Once upon a time", max_tokens=1000, temperature=0, stream=True) as stream:
        next(iter(stream))
    assert text(model="story", prompt="Once upon a time", max_tokens=12, temperature=0).choices[0].text == STORY


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with serving(sys.argv[1], "--device", "sim", "--alias", "story", "--api-key", "secret") as (_, base):
        check(openai.OpenAI(base_url=f"{base}/v1", api_key="secret", max_retries=0, timeout=120))
    print(f"openai {openai.__version__}: passed")


main()
