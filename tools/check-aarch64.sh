#!/bin/sh
# Builds the workspace for aarch64-unknown-linux-gnu and runs its tests under qemu-user.
#
#   tools/check-aarch64.sh            every test that can run under emulation
#   tools/check-aarch64.sh --core     the libraries' tests; the programs and their tests are only type-checked
#   tools/check-aarch64.sh --build    build everything, run nothing
#
# tools/cross-aarch64.sh says what it needs. On an aarch64 machine it just runs the tests.
set -eu
cd "$(dirname "$0")/.."

if [ "$(uname -m)" = aarch64 ]; then
    exec cargo test --workspace --profile ci
fi

. tools/cross-aarch64.sh
target="--profile ci --target aarch64-unknown-linux-gnu"

# Arguments that name the packages of one side, libraries or programs; with `tests`, also their test programs.
# `fork` starts threads in a forked child, which ends user-mode qemu with an assertion.
select_packages() {
    cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
side, tests = sys.argv[1], sys.argv[2:] == ["tests"]
libraries = {"nv-hw", "nvgpu-sys", "rm-sys", "nv-qmd", "nv-core-dump", "sass", "ptxgen", "ga10b-sim", "hcq"}
packages = [p for p in json.load(sys.stdin)["packages"] if (p["name"] in libraries) == (side == "libraries")]
names = {t["name"] for p in packages for t in p["targets"] if "test" in t["kind"]} - {"fork"}
print(*("-p " + p["name"] for p in packages), *("--test " + t for t in sorted(names) if tests))' "$@"
}

# Tests that do not run here. One that starts the built program, or compiles one, cannot: nothing executes an
# aarch64 program but qemu, which is given the test alone. Neither do those run that decode most on the software GPU, since
# emulation is about eight times slower; nor those of the software GPU's clock and of its time slices, which
# expect a host that keeps up.
left_out="$(printf -- '--skip %s:: ' cli doctor examples live mistakes provoke trace watch engine conformance cubins long_context tuning time preemption programs) --skip no_verdict_gets_worse"

# The properties keep their shape with fewer cases.
export PROPTEST_CASES="${PROPTEST_CASES:-16}"
unset PTXAS NVDISASM REQUIRE_ORACLES NIGHTLY
# Else insta would start cargo, which is not there for a program under emulation.
export INSTA_WORKSPACE_ROOT="$PWD"
# shellcheck disable=SC2046,SC2086
case "${1:-}" in
--build)
    cargo test --workspace $target --no-run
    ;;
--core)
    cargo test $target --lib $(select_packages libraries)
    cargo test $target $(select_packages libraries tests) -- $left_out
    cargo check $target --all-targets $(select_packages programs)
    ;;
*)
    for side in libraries programs; do
        cargo test $target --lib $(select_packages "$side")
        cargo test $target $(select_packages "$side" tests) -- $left_out
    done
    ;;
esac
