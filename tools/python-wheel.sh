#!/bin/sh
# Makes the wheels of the Python package hcq: for x86-64 and aarch64, CPython 3.9 and later, glibc 2.28 and later.
#
#   tools/python-wheel.sh            built for speed; into target/wheels
#   tools/python-wheel.sh --check    built as the checks build, then installed in new environments, where its tests
#                                    and the examples run: those of aarch64 under qemu, with a Python of Debian's
#
# maturin builds them, and zig links them for that glibc; both come from PyPI, into target/oracles. aarch64 is a cross
# compilation (tools/cross-aarch64.sh says what that needs). On an aarch64 machine there is its own wheel alone.
set -eu
cd "$(dirname "$0")/.."
umask 022
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

profile=release check=
case "${1:-}" in
'') ;;
--check) profile=ci check=yes ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

root=$PWD wheels=$PWD/target/wheels tools=$PWD/target/oracles
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/python" -m pip install -q 'maturin>=1.9.4,<2' ziglang
rm -rf "$wheels"
mkdir -p "$wheels"

# Builds the wheel of one target.
build() {
    (cd hcq-py && PATH="$tools/bin:$PATH" maturin build --profile "$profile" --target "$1" --zig \
        --compatibility manylinux_2_28 --auditwheel check --out "$wheels")
}
own=$(uname -m)
CARGO_ENCODED_RUSTFLAGS=$(tools/remap-paths.sh | tr ' ' '\037') build "$own-unknown-linux-gnu"
if [ "$own" != aarch64 ]; then
    (
        . tools/cross-aarch64.sh
        CARGO_ENCODED_RUSTFLAGS=$(tools/remap-paths.sh | tr ' ' '\037') build aarch64-unknown-linux-gnu
    )
fi
ls -l "$wheels"
[ -n "$check" ] || exit 0

# Installs the wheel of this machine in a new environment, and runs the tests and examples from there.
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment/venv"
"$environment/venv/bin/python" -m pip install -q numpy pytest "$wheels"/hcq-*_"$own".whl
(cd "$environment" && HCQ_DEVICE=sim venv/bin/python -m pytest -q -p no:cacheprovider "$root/hcq-py/tests/python")
