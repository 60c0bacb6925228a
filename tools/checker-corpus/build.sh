#!/usr/bin/env bash
# Compiles the CUDA sources of tests/checker/ to PTX, and that to the committed cubins (tools/suite-kernels.py).
#
#     tools/checker-corpus/build.sh [--check]
#
# Needs nvcc of CUDA 13 (NVCC, or on the PATH; its Python packages are nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt,
# nvidia-cuda-runtime and nvidia-cuda-cccl 13.0) and ptxas 12.6.85 (PTXAS). With --check nothing is written, and the exit code
# says whether the committed PTX is that of the sources.
set -euo pipefail
cd "$(dirname "$0")/../../tests/checker"
nvcc=${NVCC:-nvcc}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for source in *.cu; do
    ptx=${source%.cu}.ptx
    "$nvcc" -arch=compute_87 -ptx -lineinfo -o "$scratch/$ptx" "$source"
    # File names without this machine's folders; the version that ptxas 12.6 reads, whose instructions are all that these use.
    sed -i -E '/\.file/s|"[^"]*/|"|; s/^\.version .*/.version 8.5/; /^\/\/ (Cuda compilation|Based on|Compiler Build ID)/d' \
        "$scratch/$ptx"
    # By which a test without nvcc knows the source.
    sed -i "1i // SHA-256 of $source: $(sha256sum "$source" | cut -c1-64)" "$scratch/$ptx"
    if [ "${1:-}" = --check ]; then
        # Without the bytes of names, in which nvcc has a hash of the folder.
        diff -I '^\.b8' "$scratch/$ptx" "$ptx" >&2
    else
        mv "$scratch/$ptx" "$ptx"
    fi
done
[ "${1:-}" = --check ] || ../../tools/suite-kernels.py tests/checker
