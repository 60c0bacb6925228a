#!/usr/bin/env python3
"""lm-evaluation-harness against `llm-demo serve` with the embedded model: tasks of a few lines, without the network.

usage: lm_eval_client.py PROGRAM     the path of llm-demo; needs lm_eval[api], see requirements.txt
"""
import importlib.metadata
import json
import math
import os
import pathlib
import sys
import tempfile

import openai
import requests

from server import STORY, serving

# Before the harness is imported: data are local.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="secret")
import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

STORIES = [
    {"begin": "Once upon a time", "ends": [STORY, " zebra quantum tax"], "right": 0},
    {"begin": "The morning was", "ends": [" seven boxes of", " cold and bright."], "right": 1},
    {"begin": "Tom had a", "ends": [" tiny lantern", " zebra quantum tax"], "right": 0},
]
KINDS = {
    "choices": {"output_type": "multiple_choice", "doc_to_text": "{{begin}}", "doc_to_choice": "{{ends}}",
                "doc_to_target": "right", "target_delimiter": "", "metric_list": [{"metric": "acc"}]},
    "texts": {"output_type": "generate_until", "doc_to_text": "{{begin}}", "doc_to_target": "{{ends[right]}}",
              "generation_kwargs": {"until": ["\n"], "max_gen_toks": 12, "temperature": 0},
              "metric_list": [{"metric": "exact_match"}]},
    "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{begin}}{{ends[0]}}",
                "metric_list": [{"metric": "word_perplexity"}]},
}


def tasks(folder, first):
    """The names of tasks that are written to `folder`; the harness itself begins no text with the token `first`."""
    data = folder / "stories.jsonl"
    stories = [{**story, "begin": first + story["begin"]} for story in STORIES]
    data.write_text("".join(json.dumps(story) + "\n" for story in stories))
    for name, task in KINDS.items():
        task = {"task": f"story_{name}", "dataset_path": "json", "test_split": "test",
                "dataset_kwargs": {"data_files": {"test": str(data)}}, **task}
        # JSON is YAML.
        (folder / f"{name}.yaml").write_text(json.dumps(task))
    return [f"story_{name}" for name in KINDS]


def evaluated(base, names, folder):
    # The tokens are the server's, which the harness asks with `auth_token`.
    server = {"base_url": f"{base}/v1/completions", "model": "story", "max_retries": 1, "timeout": 300,
              "max_length": 256, "auth_token": "secret", "num_concurrent": 2}
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return lm_eval.simple_evaluate(model="local-completions", model_args=server, tasks=names,
                                   task_manager=manager, log_samples=True, bootstrap_iters=0)


def check(base, folder):
    headers = {"Authorization": "Bearer secret"}
    names = requests.get(f"{base}/tokenizer_info", headers=headers, timeout=60).json()
    results = evaluated(base, tasks(folder, names["bos_token"]), folder)
    assert results["results"]["story_choices"]["acc,none"] == 1, results["results"]
    [first, *_] = results["samples"]["story_choices"]
    (likelihood, greedy), (other, not_greedy) = first["filtered_resps"]
    assert greedy and not not_greedy and likelihood > other, first
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="secret")
    answer = client.completions.create(model="story", prompt="Once upon a time", max_tokens=12, temperature=0, logprobs=0)
    written = sum(answer.choices[0].logprobs.token_logprobs)
    assert math.isclose(written, likelihood, rel_tol=0.02), (written, likelihood)
    [first, *_] = results["samples"]["story_texts"]
    assert first["resps"] == [[STORY]], first
    assert 1 < results["results"]["story_rolling"]["word_perplexity,none"] < 1e6, results["results"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with (serving(sys.argv[1], "--device", "sim", "--alias", "story", "--api-key", "secret") as (_, base),
          tempfile.TemporaryDirectory() as folder):
        check(base, pathlib.Path(folder))
    print(f"lm_eval {importlib.metadata.version('lm_eval')}: passed")


main()
