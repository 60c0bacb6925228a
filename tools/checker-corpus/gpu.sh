#!/usr/bin/env bash
# Builds the corpus of tests/checker/ for the GPU of this machine (SM 9.0) and runs it beside compute-sanitizer.
#
#     OUT=FOLDER tools/checker-corpus/gpu.sh [OPTION OF sanitize.py...]
#
# Needs nvcc, compute-sanitizer (CUDA 13) and python3. Leaves sanitizer.json, runs.jsonl, cases.txt and build.log in OUT.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${OUT:?a folder for the results}"
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer /opt/nvidia/cuda/bin; do
    [ -d "$folder" ] && PATH=$PATH:$folder
done
sanitizer=$(command -v compute-sanitizer || find / -name compute-sanitizer -type f -perm -u+x 2>/dev/null | head -1)
export CUDA_MODULE_LOADING=LAZY
{
    nvidia-smi -L || true
    nvcc --version
    "$sanitizer" --version
    for source in tests/checker/*.cu; do
        name=$(basename "$source" .cu)
        (cd tests/checker && nvcc -arch=sm_90 -cubin -lineinfo -o "$work/$name.sm_90.cubin" "$name.cu") &
    done
    wait
    cuda=$(dirname "$(command -v nvcc)")/..
    nvcc -O1 -std=c++17 -cudart none -o "$work/run" tools/checker-corpus/run.cpp -lcuda ||
        c++ -O1 -std=c++17 -I"$cuda/include" -o "$work/run" tools/checker-corpus/run.cpp -lpthread \
            -L"$cuda/lib64/stubs" -L"$cuda/lib/stubs" -lcuda ||
        c++ -O1 -std=c++17 -I"$cuda/include" -o "$work/run" tools/checker-corpus/run.cpp -lpthread -l:libcuda.so.1
    ls -l "$work"
} 2>&1 | tee "$OUT/build.log"
python3 -u tools/checker-corpus/sanitize.py --run "$work/run" --cubins "$work" --out "$OUT" --sanitizer "$sanitizer" "$@"
