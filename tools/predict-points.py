#!/usr/bin/env python3
"""Joins what `tools/on-gpu.sh predict` measured with what `llm-demo predict --json` counted, into a file for
`llm-demo predict --against`.

    tools/predict-points.py --chip h100 --note TEXT OUT BENCH.json... PREDICT.json...

A measurement of N tokens from depth D on is one of position D + N / 2, which has to be among the counted ones
(`--context`).
"""
import argparse
import json


def key(document, kv):
    """Name of the model, and type of the cache."""
    model = document["model"]
    # A synthesized model is named after its shape and its mix.
    name = model["name"].removeprefix("synthetic ")
    return (name if name != model["name"] else f"{name} {model['quantization']}", kv)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", required=True)
    parser.add_argument("--note", required=True)
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    costs, measured = {}, []
    for name in arguments.files:
        with open(name, encoding="utf-8") as file:
            document = json.load(file)
        if isinstance(document, dict):
            for at in document["contexts"]:
                costs[*key(document, document["kv"]), at["position"]] = at["cost"]
            continue
        for row in document:
            if row["n_gen"] and row["choice"] == "greedy":
                position = row["n_depth"] + row["n_gen"] // 2
                measured.append((*key(row, row["type_k"]), position, row["avg_ts"]))
    points = []
    for model, kv, position, rate in measured:
        if (model, kv, position) not in costs:
            raise SystemExit(f"{model} with {kv} at position {position} was measured, but not counted")
        cost = costs[model, kv, position]
        points.append({"model": model, "kv": kv, "position": position, "tokens_per_second": rate, "cost": cost})
    document = {"schema": "llm-demo.points/1", "chip": arguments.chip, "note": arguments.note, "points": points}
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=1) + "\n")
    print(f"{arguments.out}: {len(points)} points")


if __name__ == "__main__":
    main()
