#!/usr/bin/env bash
# Everything that needs silicon, in one go, on a machine with a desktop GPU and nothing but its driver (nvcc only for CUDA's side).
#
#   tools/on-gpu.sh build            here: release binaries into target/gpu/
#   tools/on-gpu.sh suite            there: the device suite through the rm backend
#   tools/on-gpu.sh verify           there: llm-demo verify for Q6_K, Q4_K, Q8_0 and F16 models of the 1B shape, one model of every other
#                                    architecture, and the embedded model's tokens; 256 greedy tokens of the fast path against the unfused one
#   tools/on-gpu.sh profile          there: where a step and a prompt of the 1B shape spend their time, and traces of each engine (OUT/trace-*.json)
#   tools/on-gpu.sh conform          there: the same programs on the GPU and on the software ga10b
#   tools/on-gpu.sh soak             there: the long form of the soak test, as tools/soak.sh (not part of all)
#   tools/on-gpu.sh launch [CU]      there: hcq-bench, beside CUDA's figures if nvcc and the source file CU are there
#   tools/on-gpu.sh kernels          there: llm-bench, beside CUDA's and cuBLAS' figures if nvcc is there
#   tools/on-gpu.sh bench [LLAMA]    there: llm-demo bench on models of true shapes; LLAMA is llama.cpp's llama-bench, to run beside it
#   tools/on-gpu.sh batch [LLAMA]    there: llm-demo bench -b 1,2,4,8,16,32; LLAMA is llama.cpp's llama-batched-bench, to run beside it
#   tools/on-gpu.sh serve [LLAMA]    there, with Python: requests per second of llm-demo serve by 1 to 64 clients; LLAMA is llama.cpp's llama-server
#   tools/on-gpu.sh speculate        there: llm-demo speculate, text by the engine, by columns and with a draft: tokens per second, steps,
#                                    accepted tokens; MODEL names a GGUF file instead of synthetic ones, DRAFT one of a draft model
#   tools/on-gpu.sh predict          there: greedy tokens per second of five models at three depths, as JSON (OUT/depth-*.json), for
#                                    tools/predict-points.py
#   tools/on-gpu.sh tune             there, with a ptxas: llm-demo tune, then bench without and with what it found (not part of all)
#   tools/on-gpu.sh all [CU [LLAMA]] there: all of it, and a table at the end
#
# BIN names another folder of binaries, OUT one for the logs, DEVICE another backend than rm.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-target/gpu}
out=${OUT:-target/gpu-logs}
device=${DEVICE:-rm}
export HCQ_DEVICE=$device
mkdir -p "$out"
rows=()
# Who chooses the token in the tests of decode.
choices=logits,greedy,sampled
# run NAME LIMIT COMMAND...: bounded in time, logged, one row of the table.
run() {
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    if timeout "$limit" "$@" >"$out/$name.log" 2>&1; then verdict=ok; else verdict="FAILED ($?)"; fi
    rows+=("$(printf '%-28s %-14s %4d s  %s' "$name" "$verdict" $((SECONDS - began)) "$(grep -v '^$' "$out/$name.log" | tail -n 1 | cut -c1-120)")")
    echo "== $name: $verdict"
    tail -n "${LINES_SHOWN:-60}" "$out/$name.log"
}

build() {
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p llm-demo -p ga10b-tests -p ga10b-llm-checks --bins
    suite=$(cargo test --release -p ga10b-tests --test device --no-run --message-format=json 2>/dev/null |
        python3 -c 'import json,sys
for l in sys.stdin:
    d = json.loads(l)
    if d.get("executable") and d.get("target", {}).get("name") == "device": print(d["executable"])')
    mkdir -p "$bin"
    cp "$suite" "$bin/device-suite"
    for program in llm-demo hcq-bench hcq-conform hcq-soak llm-bench llm-conform; do
        cp "$target/release/$program" "$bin/"
    done
    strip "$bin"/*
    ls -la "$bin"
}
suite() { run suite 280 "$bin/device-suite" --test-threads 1; }
verify() {
    run story 60 "$bin/llm-demo" --device "$device" -n 64 --temp 0
    run verify-embedded 60 "$bin/llm-demo" verify --device "$device" -n 16
    run greedy-embedded 60 "$bin/llm-demo" verify --device "$device" --engine stream --greedy 256
    for quant in q6_k q4_k_m q8_0 f16; do
        model=${MODELS:-/tmp}/llama-3.2-1b-$quant.gguf
        [ -s "$model" ] || run "synthesize-$quant" 120 "$bin/llm-demo" synthesize "llama-3.2-1b:$quant" "$model"
        run "verify-$quant" 120 "$bin/llm-demo" verify --device "$device" -m "$model" -n 8
        run "verify-batch-$quant" 120 "$bin/llm-demo" verify --device "$device" -m "$model" -n 8 --batch
        run "greedy-$quant" 120 "$bin/llm-demo" verify --device "$device" --greedy 256 -m "$model"
    done
    # One model of every other architecture; the largest is 4 GB.
    for spec in qwen2.5-1.5b:q6_k qwen3-1.7b:q4_k_m gpt2:f16 tiny-phi4:q4_k_m olmoe-1b-7b:q4_0 \
        tiny-smollm3:q6_k tiny-mistral:q6_k tiny-gemma:q6_k gemma-2-2b:q4_k_m gemma-3-1b:q8_0; do
        name=${spec%:*}-${spec#*:}
        model=${MODELS:-/tmp}/$name.gguf
        [ -s "$model" ] || run "synthesize-$name" 120 "$bin/llm-demo" synthesize "$spec" "$model"
        run "verify-$name" 120 "$bin/llm-demo" verify --device "$device" -m "$model" -n 4
        run "verify-batch-$name" 120 "$bin/llm-demo" verify --device "$device" -m "$model" -n 4 --batch
    done
}
profile() {
    model=${MODELS:-/tmp}/llama-3.2-1b-q6_k.gguf
    [ -s "$model" ] || run synthesize-q6_k 120 "$bin/llm-demo" synthesize llama-3.2-1b:q6_k "$model"
    run profile-step 60 "$bin/llm-demo" profile --device "$device" -m "$model" -n 128
    run profile-prompt 60 "$bin/llm-demo" profile --device "$device" -m "$model" --pp 512
    for engine in stream batch; do
        run "trace-$engine" 60 "$bin/llm-demo" --device "$device" -m "$model" --engine "$engine" -n 32 --trace "$out/trace-$engine.json"
    done
}
conform() {
    run conform 120 "$bin/hcq-conform" --device "$device"
    run conform-model 120 "$bin/llm-conform" --device "$device"
}
# Opening a device takes long on silicon: fewer calls that fail, and fewer processes.
soak() {
    export SOAK_FAILURES="${SOAK_FAILURES:-4}" SOAK_KILLS="${SOAK_KILLS:-20}"
    BIN=$(realpath "$bin") run soak 900 tools/soak.sh
}
launch() {
    run launch 120 "$bin/hcq-bench" --device "$device"
    if [ -n "${1:-}" ] && command -v nvcc >/dev/null; then
        nvcc -O3 -arch=native "$1" -o "$out/cuda_launch" -lcuda && run cuda-launch 120 "$out/cuda_launch"
    fi
}
kernels() {
    run kernels 60 "$bin/llm-bench" --device "$device"
    if command -v nvcc >/dev/null; then
        nvcc -O3 -arch=native tools/cuda-peer.cu -o "$out/cuda-peer" -lcuda -lcublas && run cuda-kernels 60 "$out/cuda-peer"
    fi
}
# bench [LLAMA_BENCH]: models of true shapes; with llama.cpp's llama-bench, each model by both, one after the other.
bench() {
    for spec in ${SPECS:-llama-3.2-1b:q6_k llama-3.2-1b:q4_k_m llama-3.2-1b:q8_0 llama-3.2-1b:f16 llama-3.1-8b:q4_k_m}; do
        name=${spec%:*}-${spec#*:}
        model=${MODELS:-/tmp}/$name.gguf
        [ -s "$model" ] || run "synthesize-$name" 120 "$bin/llm-demo" synthesize "$spec" "$model"
        run "bench-$name" 180 "$bin/llm-demo" bench --device "$device" -m "$model" -p 512,8192 -n 128 -r 5 --choice "$choices"
        [ -z "${1:-}" ] || run "llama.cpp-$name" 120 "$1" -m "$model" -p 512,8192 -n 128 -ngl 99 -fa 0,1 -r 5
    done
}
# batch [LLAMA_BATCHED_BENCH]: several sequences in one step; with llama.cpp's tool each model by both, one after the other.
batch() {
    for spec in ${SPECS:-llama-3.2-1b:q6_k llama-3.2-1b:q4_k_m llama-3.2-1b:q8_0}; do
        name=${spec%:*}-${spec#*:}
        model=${MODELS:-/tmp}/$name.gguf
        [ -s "$model" ] || run "synthesize-$name" 120 "$bin/llm-demo" synthesize "$spec" "$model"
        run "batch-$name" 120 "$bin/llm-demo" bench --device "$device" -m "$model" -b 1,2,4,8,16,32 -p 128 -n 128 -r 1
        [ -z "${1:-}" ] || run "llama.cpp-batch-$name" 120 "$1" -m "$model" -npp 128 -ntg 128 -npl 1,2,4,8,16,32 -ngl 99 -fa on -c 8448
    done
}
# load NAME SECONDS COMMAND...: the load of tools/serve/load.py on a server, which listens on the port that the last argument is.
load() {
    local name=$1 seconds=$2 port=${*: -1}
    shift 2
    "$@" >"$out/$name-server.log" 2>&1 &
    local server=$!
    for _ in $(seq 120); do
        curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
        sleep 0.5
    done
    run "$name" $((6 * seconds + 40)) tools/serve/load.py "http://127.0.0.1:$port" --seconds "$seconds"
    kill "$server"
    wait "$server"
}
# serve [LLAMA_SERVER]: prompts of 100 words and texts of 128 tokens; with llama.cpp's server, both one after the other.
serve() {
    model=${MODELS:-/tmp}/llama-3.2-1b-q6_k.gguf
    [ -s "$model" ] || run synthesize-q6_k 120 "$bin/llm-demo" synthesize llama-3.2-1b:q6_k "$model"
    load serve "${LOAD_SECONDS:-4}" "$bin/llm-demo" serve --device "$device" -m "$model" --parallel 32 --queue 128 --port 8181
    [ -z "${1:-}" ] || load llama.cpp-serve "${LOAD_SECONDS:-4}" "$1" -m "$model" -np 32 -c 16384 -ngl 99 -fa on --port 8182
}
# speculate: what drafts gain. Synthetic models show times and that the text stays the same; acceptance is that of random weights, so name a real
# MODEL for figures.
speculate() {
    story="Once upon a time, a cheerful boy named Tom lived on a quiet farm. The morning was cold and bright."
    run speculate-embedded 60 "$bin/llm-demo" speculate --device "$device" --lookup -p "$story $story Once upon a time" -n 128
    models=${MODEL:-}
    if [ -z "$models" ]; then
        for spec in ${SPECS:-llama-3.2-1b:q6_k llama-3.1-8b:q4_k_m}; do
            name=${spec%:*}-${spec#*:}
            model=${MODELS:-/tmp}/$name.gguf
            [ -s "$model" ] || run "synthesize-$name" 120 "$bin/llm-demo" synthesize "$spec" "$model"
            models="$models $model"
        done
    fi
    for model in $models; do
        name=$(basename "$model" .gguf)
        run "lookup-$name" 120 "$bin/llm-demo" speculate --device "$device" --lookup -m "$model" -f "${PROMPT:-SECURITY.md}" -n 128
        run "draft-$name" 120 "$bin/llm-demo" speculate --device "$device" --draft "${DRAFT:-$model}" -m "$model" -f "${PROMPT:-SECURITY.md}" -n 128
    done
}
# Greedy tokens per second around positions 128, 8,192 and 32,704, in about a minute.
predict() {
    for spec in ${SPECS:-llama-3.2-1b:q6_k llama-3.2-1b:q4_k_m llama-3.2-1b:q8_0 llama-3.2-1b:f16 llama-3.1-8b:q4_k_m}; do
        name=${spec%:*}-${spec#*:}
        model=${MODELS:-/tmp}/$name.gguf
        [ -s "$model" ] || run "synthesize-$name" 60 "$bin/llm-demo" synthesize "$spec" "$model"
        run "depth-$name" 30 "$bin/llm-demo" bench --device "$device" -m "$model" -p 0 -n 128 -d "${DEPTHS:-64,8128,32640}" -r 2 --choice greedy -o json
        sed -n '/^\[$/,$p' "$out/depth-$name.log" >"$out/depth-$name.json"
    done
}
# Results go to a file of their own, so that other runs keep the default shapes.
tune() {
    export LLM_DEMO_TUNING=${LLM_DEMO_TUNING:-$out/tuning.json}
    for spec in ${SPECS:-llama-3.2-1b:q6_k llama-3.2-1b:q4_k_m}; do
        name=${spec%:*}-${spec#*:}
        model=${MODELS:-/tmp}/$name.gguf
        [ -s "$model" ] || run "synthesize-$name" 120 "$bin/llm-demo" synthesize "$spec" "$model"
        run "tune-$name" 300 "$bin/llm-demo" tune --device "$device" -m "$model" --budget "${BUDGET:-180}"
        run "default-$name" 120 "$bin/llm-demo" bench --device "$device" -m "$model" -p 512 -n 128 -r 5 --choice "$choices" --no-tuning
        run "tuned-$name" 120 "$bin/llm-demo" bench --device "$device" -m "$model" -p 512 -n 128 -r 5 --choice "$choices"
    done
}
case "${1:-all}" in
build) set -e; build ;;
suite) suite ;;
verify) verify ;;
profile) profile ;;
conform) conform ;;
soak) soak ;;
launch) launch "${2:-}" ;;
kernels) kernels ;;
bench) bench "${2:-}" ;;
batch) batch "${2:-}" ;;
serve) serve "${2:-}" ;;
speculate) speculate ;;
predict) predict ;;
tune) tune ;;
all) suite; verify; profile; conform; launch "${2:-}"; kernels; bench "${3:-}"; batch "${3:+$(dirname "$3")/llama-batched-bench}"; serve "${3:+$(dirname "$3")/llama-server}"; speculate; predict ;;
*) sed -n '2,23p' "$0"; exit 2 ;;
esac
[ ${#rows[@]} -eq 0 ] && exit 0
printf '\n%s\n' "${rows[@]}"
case "${rows[*]}" in *FAILED*) exit 1 ;; esac
