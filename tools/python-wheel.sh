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
        # It would have the cross compiler link, for this machine's glibc.
        unset CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER
        CARGO_ENCODED_RUSTFLAGS=$(tools/remap-paths.sh | tr ' ' '\037') build aarch64-unknown-linux-gnu
    )
fi
ls -l "$wheels"
[ -n "$check" ] || exit 0

# The tests and examples from a new environment with the wheel of this machine, not from the sources.
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
cd "$environment"
export PYTHONDONTWRITEBYTECODE=1 HCQ_DEVICE=sim
tests=$root/hcq-py/tests/python examples=$root/hcq-py/examples
python3 -m venv venv
venv/bin/python -m pip install -q numpy pytest "$wheels"/hcq-*_"$own".whl
venv/bin/python -m pytest -q -p no:cacheprovider "$tests"
venv/bin/python -m hcq info
[ "$own" != aarch64 ] || exit 0

# A Python for aarch64: the distribution's, unpacked and not installed, and numpy's wheel for it.
python=$(apt-cache depends python3-minimal:arm64 | sed -n 's/.*Depends: \(python3\.[0-9]*\)-minimal.*/\1/p' | head -n 1)
libraries="libexpat1 zlib1g libffi8 libbz2-1.0 liblzma5 libuuid1 libstdc++6"
mkdir debs
(
    cd debs
    apt-get download -qq "$python-minimal:arm64" "lib$python-minimal:arm64" "lib$python-stdlib:arm64" \
        $(printf '%s:arm64 ' $libraries)
)
cp -a "$root/target/xrust/root" arm
for deb in debs/*.deb; do dpkg -x "$deb" arm; done
venv/bin/python -m pip install -q --target site --only-binary :all: --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 --python-version "${python#python}" \
    numpy pytest "$wheels"/hcq-*_aarch64.whl
# Below the emulator no test starts a program: `test_package` and most of `test_processes` do.
on_arm() {
    env LD_LIBRARY_PATH= PYTHONHOME="$PWD/arm/usr" PYTHONPATH="$PWD/site" \
        qemu-aarch64 -L "$PWD/arm" "$PWD/arm/usr/bin/$python" "$@"
}
on_arm -m hcq info
for example in "$examples"/0*.py; do on_arm "$example"; done
on_arm "$examples/loop.py" --hz 100 --seconds 1
on_arm -m pytest -q -p no:cacheprovider "$tests/test_buffers.py" "$tests/test_launches.py" "$tests/test_work.py" \
    "$tests/test_faults.py"
