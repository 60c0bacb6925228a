#!/bin/sh
# Builds the workspace for aarch64-unknown-linux-gnu and runs its tests under qemu-user.
#
#   tools/check-aarch64.sh            every test that can run under emulation
#   tools/check-aarch64.sh --core     the libraries' tests; the programs and their tests are only type-checked
#   tools/check-aarch64.sh --build    build everything, run nothing
#
# Works on a Debian or Ubuntu x86-64 machine; needs root for the first set-up (a cross linker and qemu-user
# from the distribution's packages). The aarch64 standard library comes with the distribution's own rustc,
# unpacked into target/xrust and not installed. On an aarch64 machine it just runs the tests.
set -eu
cd "$(dirname "$0")/.."

if [ "$(uname -m)" = aarch64 ]; then
    exec cargo test --workspace --profile ci
fi

prefix=$PWD/target/xrust
setup() {
    rm -rf "$prefix"
    mkdir -p "$prefix/deb" "$prefix/root"
    dpkg --add-architecture arm64
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user >/dev/null
    version=$(apt-cache policy rustc-web | awk '/Candidate/{print $2}')
    std=$(apt-cache depends "libstd-rust-web-dev:amd64=$version" | awk '/Depends: libstd-rust-web-/{print $2}')
    llvm=$(apt-cache depends "$std:amd64=$version" | awk '/Depends: libllvm/{print $2}')
    [ -n "$version" ] && [ -n "$std" ] && [ -n "$llvm" ] || {
        echo "check-aarch64: the distribution has no multi-arch rustc-web package" >&2
        exit 1
    }
    # libgcc and libc of arm64 go into the prefix too: qemu must find one consistent set (a mix of the cross
    # package's loader and the multi-arch libc makes every threaded program hang).
    (cd "$prefix/deb" && apt-get download -qq "rustc-web=$version" "$std:amd64=$version" \
        "libstd-rust-web-dev:amd64=$version" "libstd-rust-web-dev:arm64=$version" "$llvm:amd64" libc6:arm64 libgcc-s1:arm64)
    for deb in "$prefix"/deb/*.deb; do dpkg -x "$deb" "$prefix/root"; done
    rm -rf "$prefix/deb"
}
ready() {
    [ -x "$prefix/root/usr/bin/rustc" ] && command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null
}
ready || setup

# The unpacked rustc finds its LLVM by this path. No wrapper script: a shell drops variables such as
# CARGO_BIN_EXE_llm-demo.
export LD_LIBRARY_PATH="$prefix/root/usr/lib/x86_64-linux-gnu" RUSTC="$prefix/root/usr/bin/rustc"
export CARGO_TARGET_DIR="$PWD/target/aarch64"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $prefix/root"
unset RUSTC_WRAPPER RUSTUP_TOOLCHAIN 2>/dev/null || true
target="--profile ci --target aarch64-unknown-linux-gnu"

# Arguments that name the packages of one side, libraries or programs; with `tests`, also their tests that can
# run here. A test that starts the built program cannot: nothing executes an aarch64 program but qemu, which
# is given the test alone. Neither do those run that decode most on the software GPU, since emulation is about
# eight times slower. `fork` starts threads in a forked child, which ends user-mode qemu with an assertion.
select_packages() {
    cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
side, tests = sys.argv[1], sys.argv[2:] == ["tests"]
libraries = {"nvgpu-sys", "rm-sys", "nv-qmd", "sass", "ptxgen", "ga10b-sim", "hcq"}
left_out = {"cli", "doctor", "examples", "fork", "live", "mistakes", "provoke", "trace", "watch", "engine", "conformance", "cubins", "long_context", "tuning"}
packages = [p for p in json.load(sys.stdin)["packages"] if (p["name"] in libraries) == (side == "libraries")]
names = {t["name"] for p in packages for t in p["targets"] if "test" in t["kind"]} - left_out
print(*("-p " + p["name"] for p in packages), *("--test " + t for t in sorted(names) if tests))' "$@"
}

# The properties keep their shape with fewer cases.
export PROPTEST_CASES="${PROPTEST_CASES:-16}"
unset PTXAS NVDISASM REQUIRE_ORACLES
# shellcheck disable=SC2046,SC2086
case "${1:-}" in
--build)
    cargo test --workspace $target --no-run
    ;;
--core)
    cargo test $target --lib $(select_packages libraries tests)
    cargo check $target --all-targets $(select_packages programs)
    ;;
*)
    cargo test $target --lib $(select_packages libraries tests)
    cargo test $target --lib $(select_packages programs tests)
    ;;
esac
