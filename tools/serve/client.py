#!/usr/bin/env python3
"""The official client of OpenAI's interface against `llm-demo serve` with the embedded model.

usage: client.py PROGRAM     the path of llm-demo; needs openai and jsonschema, see requirements.txt
"""
import json
import sys

import jsonschema
import openai

from server import STORY, fails, serving


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


TOOLS = [{"type": "function", "function": {
    "name": "go", "description": "Walk to a place",
    "parameters": {"type": "object", "properties": {"place": {"enum": ["house", "forest"]}},
                   "required": ["place"], "additionalProperties": False}}}]


def check_tools(chat, messages):
    """Calls of functions, whose arguments are what the schema accepts, and their results."""
    ask = dict(model="story", messages=messages, tools=TOOLS, temperature=1.5, seed=4, max_completion_tokens=80)
    for choice in "required", {"type": "function", "function": {"name": "go"}}:
        answer = chat(tool_choice=choice, parallel_tool_calls=False, **ask).choices[0]
        assert answer.finish_reason == "tool_calls" and answer.message.content is None, answer
        [call] = answer.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), TOOLS[0]["function"]["parameters"])
        chunks = list(chat(tool_choice=choice, parallel_tool_calls=False, stream=True, **ask))
        deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
        assert deltas[0].id and deltas[0].function.name == "go", deltas
        assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
    told = [*messages, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "You are there."}]
    assert chat(model="story", messages=told, tools=TOOLS, max_completion_tokens=8).choices[0].message.content
    assert chat(**{**ask, "tool_choice": "none"}).choices[0].message.tool_calls is None
    error = fails(openai.BadRequestError, lambda: chat(tools=[{"type": "function", "function": {"name": ""}}],
                                                       model="story", messages=messages))
    assert error.param == "tools[0].function", error.body


def check_several(chat, text, messages):
    """Several texts, several prompts, and probabilities."""
    warm = dict(model="story", max_tokens=8, temperature=1.5, extra_body={"top_k": 0, "min_p": 0}, top_p=1)
    alone = [chat(messages=messages, seed=seed, **warm).choices[0].message.content for seed in (7, 8, 9)]
    answer = chat(messages=messages, seed=7, n=3, **warm)
    assert [choice.message.content for choice in answer.choices] == alone and len(set(alone)) == 3, answer
    texts = ["", "", ""]
    for chunk in chat(messages=messages, seed=7, n=3, stream=True, **warm):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == alone, (texts, alone)
    greedy = dict(model="story", max_tokens=8, temperature=0)
    prompts = ["Once upon a time", "The little fox"]
    one_by_one = [text(prompt=prompt, **greedy).choices[0].text for prompt in prompts]
    assert [choice.text for choice in text(prompt=prompts, **greedy).choices] == one_by_one

    choice = chat(messages=messages, logprobs=True, top_logprobs=2, **greedy).choices[0]
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content and len(tokens) == 8
    assert all(token.top_logprobs[0].token == token.token and token.logprob <= 0 for token in tokens)
    chunks = chat(messages=messages, logprobs=True, top_logprobs=2, stream=True, **greedy)
    assert [token for chunk in chunks if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.content] == tokens
    choice = text(prompt=prompts[0], logprobs=2, **greedy).choices[0]
    assert choice.logprobs.token_logprobs == [token.logprob for token in tokens], choice


def check_embeddings(client):
    """Embeddings, which the client asks for in base64 by itself, and the probabilities of prompts."""
    texts = ["Once upon a time", "The little fox"]
    vectors = [entry.embedding for entry in client.embeddings.create(model="story", input=texts).data]
    floats = client.embeddings.create(model="story", input=texts[1], encoding_format="float").data[0].embedding
    assert all(abs(a - b) < 1e-6 for a, b in zip(vectors[1], floats)) and len(floats) == len(vectors[0])
    assert abs(sum(value * value for value in floats) - 1) < 1e-4
    error = fails(openai.BadRequestError, lambda: client.embeddings.create(model="story", input="a", dimensions=8))
    assert error.param == "dimensions", error.body

    told = client.completions.create(model="story", prompt=texts, max_tokens=0, echo=True, logprobs=1)
    assert [choice.text for choice in told.choices] == texts, told
    for choice in told.choices:
        first, *rest = choice.logprobs.token_logprobs
        assert first is None and all(value < 0 for value in rest) and len(rest) > 1, choice


def check_responses(client):
    """Responses, of texts alone."""
    ask = dict(model="story", input="Once upon a time", max_output_tokens=12, temperature=0)
    answer = client.responses.create(**ask)
    assert (answer.output_text, answer.status) == (STORY, "incomplete"), answer
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 12), answer
    events = list(client.responses.create(stream=True, **ask))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == STORY
    assert events[0].type == "response.created" and events[-1].response.output_text == STORY
    with client.responses.stream(**{**ask, "input": [{"role": "user", "content": ask["input"]}]}) as stream:
        assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == STORY
    form = {"format": {"type": "json_schema", "name": "character", "strict": True, "schema": CHARACTER}}
    answer = client.responses.create(**{**ask, "max_output_tokens": 300, "temperature": 1.5}, text=form)
    jsonschema.validate(json.loads(answer.output_text), CHARACTER)
    error = fails(openai.BadRequestError, lambda: client.responses.create(previous_response_id="resp_1", **ask))
    assert error.param == "previous_response_id", error.body


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
    check_tools(chat, messages)
    check_several(chat, text, messages)
    check_responses(client)
    check_embeddings(client)

    error = fails(openai.BadRequestError, lambda: chat(model="story", messages=messages, n=200))
    assert error.param == "n" and error.type == "invalid_request_error", error.body
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
