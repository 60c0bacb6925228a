#!/usr/bin/env python3
"""The package langchain-openai against `llm-demo serve` with the embedded model.

usage: langchain_client.py PROGRAM     the path of llm-demo; needs langchain-openai, see requirements.txt
"""
import importlib.metadata
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from server import STORY, serving


@tool
def go(steps: int, forward: bool) -> str:
    """Walk."""
    return f"{steps} steps {forward}"


class Walk(BaseModel):
    """A walk."""
    steps: int
    forward: bool


def check(**server):
    ask = dict(model="story", temperature=0, max_retries=0, **server)
    chat = ChatOpenAI(max_tokens=12, **ask)
    assert chat.invoke("Once upon a time").content == STORY
    assert "".join(chunk.content for chunk in chat.stream("Once upon a time")) == STORY
    assert [answer.content for answer in chat.batch(["Once upon a time"] * 3)] == [STORY] * 3
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke("Once upon a time")
    assert "".join(token["token"] for token in answer.response_metadata["logprobs"]["content"]) == STORY
    [texts] = ChatOpenAI(n=2, max_tokens=12, **ask).generate([[HumanMessage("Once upon a time")]]).generations
    assert [text.text for text in texts] == [STORY] * 2
    assert ChatOpenAI(use_responses_api=True, max_tokens=12, **ask).invoke("Once upon a time").text == STORY
    prompts = ["Once upon a time", "The little fox"]
    assert OpenAI(max_tokens=12, **ask).generate(prompts).generations[0][0].text == STORY

    # Else it sends the tokens of a vocabulary of OpenAI's.
    embeddings = OpenAIEmbeddings(model="story", check_embedding_ctx_length=False, max_retries=0, **server)
    assert embeddings.embed_documents(prompts)[1] == embeddings.embed_query(prompts[1])

    warm = ChatOpenAI(**{**ask, "temperature": 1.2}, max_tokens=120, seed=2)
    caller = warm.bind_tools([go], tool_choice="any", strict=True, parallel_tool_calls=False)
    answer = caller.invoke("Once upon a time")
    assert answer.tool_calls and not answer.invalid_tool_calls, answer
    whole = None
    for chunk in caller.stream("Once upon a time"):
        whole = chunk if whole is None else whole + chunk
    assert [call["args"] for call in whole.tool_calls] == [call["args"] for call in answer.tool_calls], whole
    results = [ToolMessage(go.invoke(call).content, tool_call_id=call["id"]) for call in answer.tool_calls]
    assert warm.invoke([HumanMessage("Once upon a time"), answer, *results]).content
    for method in "json_schema", "function_calling":
        walk = warm.with_structured_output(Walk, method=method, strict=True).invoke("Once upon a time")
        assert isinstance(walk, Walk), walk


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with serving(sys.argv[1], "--device", "sim", "--alias", "story", "--api-key", "secret") as (_, base):
        check(base_url=f"{base}/v1", api_key="secret", timeout=120)
    print(f"langchain-openai {importlib.metadata.version('langchain-openai')}: passed")


main()
