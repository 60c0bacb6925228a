#!/bin/sh
# Runs the test suites of tinygrad's interface for Tegra on the software ga10b.
#
#   tools/clients/tinygrad.sh CHECKOUT PYTHON [SUITE ..]
#
# CHECKOUT is a folder with tinygrad at the head of its pull request 15465 (7d5bbde74e); PYTHON an interpreter
# with numpy, pytest, hypothesis, torch and gguf. The script fetches nothing. tinygrad compiles with NVRTC:
# NVRTC_PATH names libnvrtc.so, NVJITLINK_PATH libnvJitLink.so, and CUDA_PATH a folder whose include/ has
# cuda_fp16.h (from the Python packages nvidia-cuda-nvrtc-cu12, nvidia-nvjitlink-cu12 and
# nvidia-cuda-runtime-cu12, or from CUDA). Tests that compute on the CPU too call clang.
#
# Prints one line for each suite: passed, failed, skipped, seconds; the output of each is kept in
# target/clients. docs/clients.md has the table and why what fails fails. BUILD_PROFILE (release) is the
# profile of cargo that builds the library, SUITE_SECONDS (3600) the patience with a suite.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0"
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
profile=${BUILD_PROFILE:-release}
cargo build --profile "$profile" -q -p ga10b-sim-preload
library=$PWD/target/$profile/libnvgpu_sim.so
output=$PWD/target/clients clients=$PWD/tools/clients
mkdir -p "$output"
[ $# -gt 0 ] || set -- test/test_tiny.py test/device/test_hcq.py test/unit/test_gguf.py \
    test/backend/test_jit.py test/backend/test_ops.py
cd "$checkout"

# Tests that give the copy engine memory of the CPU, which the interface does not map: the fault ends the GPU
# for the process, and every later test with it. Each runs in a process of its own.
alone() {
    case $1 in
        */test_hcq.py) echo TestHCQ::test_map_cpu_buffer_to_device ;;
        */test_jit.py)
            echo TestJit::test_jit_several_devs TestCopyInsideJit::test_copy_inside_jit \
                TestJitPrune::test_prune_w_copy_correct TestJitPrune::test_prune_w_independent_copy_correct
            ;;
    esac
}

# suite LOG PATIENCE ARGUMENT..: runs pytest, with the client's patience in milliseconds. The interpreter is
# slower than a GPU: a kernel may take longer than the client's default of 30 s.
suite() {
    log=$1 patience=$2
    shift 2
    LD_PRELOAD=$library DEV=NV HCQDEV_WAIT_TIMEOUT_MS=$patience PYTHONPATH=$checkout \
        timeout "${SUITE_SECONDS:-3600}" "$python" -m pytest -q --no-header -p no:cacheprovider "$@" \
        >>"$log" 2>&1
}

status=0
"$clients/summary.sh"
for suite in "$@"; do
    log=$output/$(echo "$suite" | tr / -).log
    : >"$log"
    deselect=
    for test in $(alone "$suite"); do deselect="$deselect --deselect $suite::$test"; done
    # Words of $deselect are arguments.
    # shellcheck disable=SC2086
    suite "$log" "${HCQDEV_WAIT_TIMEOUT_MS:-120000}" "$suite" $deselect || status=1
    for test in $(alone "$suite"); do suite "$log" 10000 "$suite::$test" || status=1; done
    "$clients/summary.sh" "$suite" "$log"
done
exit $status
