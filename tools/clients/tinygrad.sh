#!/bin/sh
# Runs the test suites of tinygrad's interface for Tegra on the software ga10b.
#
#   tools/clients/tinygrad.sh CHECKOUT PYTHON [SUITE ..]
#
# CHECKOUT is a folder with tinygrad at the head of its pull request 15465 (7d5bbde74e); PYTHON an interpreter with
# numpy, pytest, hypothesis and torch. The script fetches nothing. tinygrad compiles with NVRTC: NVRTC_PATH names
# libnvrtc.so, and CUDA_PATH a folder whose include/ has cuda_fp16.h (from the Python packages
# nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12, or from CUDA).
#
# Prints one line for each suite: passed, failed, skipped, seconds; the output of each is kept in
# target/clients. docs/clients.md has the table and why what fails fails.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,13s/^# \{0,1\}//p' "$0"
    exit 2
fi
checkout=$(realpath "$1")
python=$2
shift 2
cd "$(dirname "$0")/../.."
[ -e "$checkout/tinygrad/runtime/support/nv/tegradev.py" ] || {
    echo "tinygrad: $checkout is no checkout of tinygrad with its interface for Tegra" >&2
    exit 2
}
cargo build --release -q -p ga10b-sim-preload
library=$PWD/target/release/libnvgpu_sim.so
output=$PWD/target/clients
mkdir -p "$output"
[ $# -gt 0 ] || set -- test/test_tiny.py test/device/test_hcq.py test/unit/test_gguf.py test/backend/test_jit.py \
    test/backend/test_ops.py
cd "$checkout"
status=0
printf '%-28s %7s %7s %8s %8s\n' suite passed failed skipped seconds
for suite in "$@"; do
    log=$output/$(echo "$suite" | tr / -).log
    # The interpreter is slower than a GPU: a kernel may take longer than the client's default of 30 s.
    LD_PRELOAD=$library DEV=NV HCQDEV_WAIT_TIMEOUT_MS=${HCQDEV_WAIT_TIMEOUT_MS:-120000} PYTHONPATH=$checkout \
        timeout "${SUITE_SECONDS:-3600}" "$python" -m pytest -q --no-header -p no:cacheprovider "$suite" \
        >"$log" 2>&1 || status=1
    tail -n 1 "$log" | awk -v suite="$suite" '{
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) passed = $(i - 1)
            if ($i ~ /^failed/) failed = $(i - 1)
            if ($i ~ /^skipped/) skipped = $(i - 1)
            if ($i ~ /^in$/) seconds = $(i + 1)
        }
        printf "%-28s %7d %7d %8d %8s\n", suite, passed, failed, skipped, seconds
    }'
done
exit $status
