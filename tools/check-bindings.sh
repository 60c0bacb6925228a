#!/bin/sh
# Generates the bindings of nvgpu-sys and rm-sys anew and fails if a committed file changes. Needs libclang
# (LIBCLANG_PATH names its folder where it is not in a usual place); says "skipped" without it, and fails with
# REQUIRE_ORACLES=yes.
set -eu
cd "$(dirname "$0")/.."

found=no
for dir in ${LIBCLANG_PATH:-} /usr/lib /usr/lib64 /usr/lib/*-linux-gnu /usr/lib/llvm-*/lib; do
    for lib in "$dir"/libclang.so* "$dir"/libclang-[0-9]*.so*; do
        if [ -e "$lib" ]; then
            found=$dir
            break 2
        fi
    done
done
if [ "$found" = no ]; then
    echo "skipped: no libclang (set LIBCLANG_PATH)"
    [ "${REQUIRE_ORACLES:-}" = yes ] && exit 1
    exit 0
fi
export LIBCLANG_PATH="$found"
unset NVGPU_UAPI_DIR

generated="nvgpu-sys/src/bindings.rs nvgpu-sys/tests/it/layout/rows.rs rm-sys/src/bindings.rs rm-sys/tests/it/layout/rows.rs"
# shellcheck disable=SC2086
before=$(sha256sum $generated)
touch nvgpu-sys/build.rs rm-sys/build.rs
cargo check --quiet --profile ci -p nvgpu-sys -p rm-sys --features nvgpu-sys/bindgen,rm-sys/bindgen
# shellcheck disable=SC2086
if [ "$before" != "$(sha256sum $generated)" ]; then
    echo "generated files changed: commit what the generator wrote" >&2
    exit 1
fi
echo "bindings regenerate to no difference"
