#!/usr/bin/env bash
# From what `tools/on-gpu.sh predict` measured to the file of measurements and the tables of docs/performance.md:
#
#   tools/predictions.sh MEASURED NOTE
#
# counts the same models at the same positions on the software ga10b (a quarter of an hour of two cores; COUNTED names
# the folder of the counts, and those that are there stay), joins both into llm/tools/data/h100.json, fits the
# constants, prints them for `Fitted::DEFAULT` in llm/tools/src/roofline.rs, and writes the tables. MEASURED is the
# folder of depth-*.json, NOTE says what was measured and when, BIN where llm-demo is. Run it again after the constants
# were taken over: then the tables are those of the constants in use.
set -euo pipefail
cd "$(dirname "$0")/.."
measured=$1 note=$2
bin=${BIN:-target/release} counted=${COUNTED:-target/counted}
mkdir -p "$counted"
files=()
for spec in ${SPECS:-llama-3.2-1b:q6_k llama-3.2-1b:q4_k_m llama-3.2-1b:q8_0 llama-3.2-1b:f16 llama-3.1-8b:q4_k_m}; do
    name=${spec%:*}-${spec#*:}
    if [ ! -s "$counted/$name.json" ]; then
        "$bin/llm-demo" synthesize "$spec" "$counted/$name.gguf"
        "$bin/llm-demo" predict --chip h100 --context "${CONTEXTS:-128,8192,32704}" --json -m "$counted/$name.gguf" \
            >"$counted/$name.part"
        mv "$counted/$name.part" "$counted/$name.json"
        rm "$counted/$name.gguf"
    fi
    files+=("$measured/depth-$name.json" "$counted/$name.json")
done
tools/predict-points.py --chip h100 --note "$note" llm/tools/data/h100.json "${files[@]}"
"$bin/llm-demo" predict --against llm/tools/data/h100.json --fit
"$bin/llm-demo" predict --against llm/tools/data/h100.json --json >"$counted/against.json"
tools/predict-docs.py docs/performance.md "$counted/against.json"
