#!/bin/sh
# Runs tinygrad's test suites through the Python package hcq (tools/clients/tinygrad_hcq.py), on the software GPU.
#
#   tools/clients/tinygrad-hcq.sh CHECKOUT WHEEL [SUITE ..]
#
# CHECKOUT is a folder with tinygrad's repository at tag v0.14.0, for its tests; WHEEL is hcq's, of
# tools/python-wheel.sh. tinygrad 0.14.0, torch, NVRTC, and clang for tests that compute on the CPU come from PyPI into
# target/clients/venv: 5 GB, torch's CUDA among them.
#
# Prints one line for each suite: passed, failed, skipped, seconds; the output of each is kept in target/clients.
# docs/clients.md has the table and why what fails fails. DEV (HCQ; HCQ:PTX) and HCQ_DEVICE (sim) are the programs'
# own; WORKERS (2) is the number of processes, SUITE_SECONDS (3600) the patience with a suite.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,13s/^# \{0,1\}//p' "$0"
    exit 2
fi
checkout=$(realpath "$1")
wheel=$(realpath "$2")
shift 2
cd "$(dirname "$0")/../.."
clients=$PWD/tools/clients output=$PWD/target/clients
[ -e "$checkout/test/backend/test_ops.py" ] || {
    echo "tinygrad-hcq: $checkout has no test/backend/test_ops.py: clone tinygrad's tag v0.14.0" >&2
    exit 2
}
venv=$output/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install -q tinygrad==0.14.0 torch==2.15.0 numpy pytest==9.2.0 pytest-xdist==3.8.0 hypothesis \
    ziglang nvidia-cuda-nvrtc-cu12==12.6.85 nvidia-cuda-runtime-cu12==12.6.77 nvidia-cuda-nvcc-cu12==12.6.85
"$venv/bin/python" -m pip install -q --force-reinstall --no-deps "$wheel"
printf '#!/bin/sh\nexec "%s/bin/python" -m ziglang clang "$@"\n' "$venv" >"$venv/bin/clang"
chmod +x "$venv/bin/clang"

# The tests alone: the package tinygrad is PyPI's.
tests=$(mktemp -d)
trap 'rm -rf "$tests"' EXIT
cp -r "$checkout/test" "$checkout/extra" "$checkout/examples" "$tests"
cd "$tests"
[ $# -gt 0 ] || set -- test/test_tiny.py test/backend/test_jit.py test/backend/test_ops.py
status=0
"$clients/summary.sh"
for suite in "$@"; do
    log=$output/hcq-$(echo "$suite" | tr / -).log
    PATH=$venv/bin:$PATH PYTHONPATH=$clients DEV=${DEV:-HCQ} HCQ_DEVICE=${HCQ_DEVICE:-sim} \
        timeout "${SUITE_SECONDS:-3600}" "$venv/bin/python" -m pytest -q --no-header -p no:cacheprovider \
        -p tinygrad_hcq -n "${WORKERS:-2}" "$suite" >"$log" 2>&1 || status=1
    "$clients/summary.sh" "$suite" "$log"
done
exit $status
