#!/bin/sh
# Generates the bindings of nvgpu-sys and rm-sys anew and fails if a committed file changes. Needs libclang
# (LIBCLANG_PATH names its folder where it is not in a usual place); says "skipped" without it, or fails with REQUIRE_ORACLES=yes.
set -eu
cd "$(dirname "$0")/.."

found=no
for dir in ${LIBCLANG_PATH:-} /usr/lib /usr/lib64 /usr/lib/*-linux-gnu /usr/lib/llvm-*/lib; do
    for lib in "$dir"/libclang.so* "$dir"/libclang-*.so*; do
        if [ -e "$lib" ]; then
            found=$dir
            break 2
        fi
    done
done
if [ "$found" = no ]; then
    if [ "${REQUIRE_ORACLES:-}" = yes ]; then
        echo "no libclang, and REQUIRE_ORACLES=yes (set LIBCLANG_PATH)" >&2
        exit 1
    fi
    echo "skipped: no libclang (set LIBCLANG_PATH)"
    exit 0
fi
export LIBCLANG_PATH="$found"
unset NVGPU_UAPI_DIR

for crate in nvgpu-sys rm-sys; do
    before=$(sha256sum "$crate/src/bindings.rs")
    touch "$crate/build.rs"
    cargo check --quiet -p "$crate" --features bindgen
    if [ "$before" != "$(sha256sum "$crate/src/bindings.rs")" ]; then
        echo "$crate/src/bindings.rs changed: commit what the generator wrote" >&2
        exit 1
    fi
done
echo "bindings regenerate to no difference"
