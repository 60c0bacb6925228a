#!/bin/sh
# Builds the workspace for aarch64-unknown-linux-gnu and runs its unit, property and sim tests under qemu-user.
#
#   tools/check-aarch64.sh            set up (once), build, test
#   tools/check-aarch64.sh --build    build only
#
# Works on a Debian or Ubuntu x86-64 machine; needs root for the first set-up (a cross linker and qemu-user from the distribution's
# packages). The aarch64 standard library comes with the distribution's own rustc, unpacked into target/xrust and not installed.
# On an aarch64 machine it just runs the tests. LIMIT (seconds, default 3600) bounds building and testing together: what it cuts off
# is an error, or, with PARTIAL=yes, is said and is none, as long as everything that did run passed; the tests of the programs
# (the language model, nvdiag, the device suite) are then only built.
set -eu
cd "$(dirname "$0")/.."
limit=${LIMIT:-3600}
begin=$(date +%s)

if [ "$(uname -m)" = aarch64 ]; then
    exec timeout "$limit" cargo test --workspace --release
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
    # libgcc and libc of arm64 go into the prefix too: qemu must find one consistent set (a mix of the cross package's loader and the
    # multi-arch libc makes every threaded program hang).
    (cd "$prefix/deb" && apt-get download -qq "rustc-web=$version" "$std:amd64=$version" "libstd-rust-web-dev:amd64=$version" \
        "libstd-rust-web-dev:arm64=$version" "$llvm:amd64" libc6:arm64 libgcc-s1:arm64)
    for deb in "$prefix"/deb/*.deb; do dpkg -x "$deb" "$prefix/root"; done
    rm -rf "$prefix/deb"
}
[ -x "$prefix/root/usr/bin/rustc" ] && command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null || setup

# The unpacked rustc finds its LLVM by this path. No wrapper script: a shell drops variables such as CARGO_BIN_EXE_llm-demo.
export LD_LIBRARY_PATH="$prefix/root/usr/lib/x86_64-linux-gnu" RUSTC="$prefix/root/usr/bin/rustc" CARGO_TARGET_DIR="$PWD/target/aarch64"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $prefix/root"
unset RUSTC_WRAPPER RUSTUP_TOOLCHAIN 2>/dev/null || true

target=aarch64-unknown-linux-gnu
[ "${1:-}" = --build ] && exec cargo test --workspace --release --target $target --no-run

# Emulation is about eight times slower: the properties keep their shape with fewer cases, and the tests that decode most on the
# software GPU are left to the run without it. Tests that start the built binary themselves cannot run here: nothing executes an aarch64
# program but qemu, which is given the test binary only.
export PROPTEST_CASES="${PROPTEST_CASES:-16}"
unset PTXAS NVDISASM
# Dependencies are not what is tested: built with less care, they are there sooner.
status=0
check() {
    left=$((limit - ($(date +%s) - begin)))
    timeout $((left > 0 ? left : 1)) cargo test --release --target $target --lib "$@" \
        --config 'profile.release.package."*".opt-level=1' --config 'profile.release.debug=false' || status=$?
    [ "$status" = 0 ] && return
    if [ "$status" = 124 ] && [ "${PARTIAL:-}" = yes ]; then
        echo "check-aarch64: stopped after $limit s; what ran passed, the rest did not run"
        exit 0
    fi
    exit "$status"
}
# Arguments that name the packages on this side of the line, and their tests that can run here.
select_tests() {
    cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
core = {"nvgpu-sys", "rm-sys", "qmd", "sass", "ptxgen", "ga10b-sim", "hcq"}
left_out = {"cli", "doctor", "live", "mistakes", "provoke", "trace", "watch", "engine", "conformance", "cubins", "long_context", "tuning"}
packages = [p for p in json.load(sys.stdin)["packages"] if (p["name"] in core) == (sys.argv[1] == "core")]
tests = {t["name"] for p in packages for t in p["targets"] if "test" in t["kind"]} - left_out
print(" ".join(["-p " + p["name"] for p in packages] + ["--test " + t for t in sorted(tests)]))' "$1"
}
# The driver, the machine code and the software GPU first: their tests run before anything of the programs above them is built. Two calls,
# not one per package: cargo would compile the dependencies again each time, with other features.
# shellcheck disable=SC2046
check $(select_tests core)
# shellcheck disable=SC2046
check $(select_tests programs) $(if [ "${PARTIAL:-}" = yes ]; then echo --no-run; fi)
