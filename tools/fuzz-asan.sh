#!/bin/sh
# The fuzzers (tests/src/fuzz/) under AddressSanitizer, for which a nightly toolchain is needed.
#
#   tools/fuzz-asan.sh [hcq-fuzz's arguments]
#
# Dependencies are compiled with it too, the standard library is not. FUZZ_TARGET names another machine than x86-64.
set -eu
cd "$(dirname "$0")/.."
machine="${FUZZ_TARGET:-x86_64-unknown-linux-gnu}"
export RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
# Build scripts run on this machine, and are compiled without it: that is what --target does.
exec cargo +nightly run --profile ci --target "$machine" -p ga10b-tests --bin hcq-fuzz -- "$@"
