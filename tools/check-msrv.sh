#!/bin/sh
# Compiles the libraries whose minimum Rust is not above the distribution's oldest with that one.
#
# Debian's rustc-web is unpacked into target/msrv and not installed; needs apt. The other crates need the Rust
# that everything else here is checked with.
set -eu
cd "$(dirname "$0")/.."
prefix=$PWD/target/msrv

skip() {
    echo "skipped: $1"
    [ "${REQUIRE_ORACLES:-}" = yes ] && exit 1
    exit 77
}
command -v apt-get >/dev/null || skip "no apt-get"
version=$(apt-cache madison rustc-web | awk '{print $3}' | sort -V | head -n 1)
[ -n "$version" ] || skip "the distribution has no rustc-web"

if ! "$prefix/$version/usr/bin/rustc" --version >/dev/null 2>&1; then
    mkdir -p "$prefix/deb" "$prefix/$version"
    (
        cd "$prefix/deb"
        std=$(apt-cache depends "libstd-rust-web-dev=$version" | awk '/Depends: libstd-rust-web-/{print $2}')
        llvm=$(apt-cache depends "$std=$version" | awk '/Depends: libllvm/{print $2}')
        apt-get download -qq "rustc-web=$version" "libstd-rust-web-dev=$version" "$std=$version" "$llvm"
        for deb in *.deb; do dpkg -x "$deb" "$prefix/$version"; done
    ) 2>/dev/null
    rm -rf "$prefix/deb"
fi
LD_LIBRARY_PATH=$prefix/$version/usr/lib/$(uname -m)-linux-gnu
RUSTC=$prefix/$version/usr/bin/rustc
export LD_LIBRARY_PATH RUSTC
unset RUSTC_WRAPPER RUSTUP_TOOLCHAIN 2>/dev/null || true

release=$("$RUSTC" --version | awk '{print $2}')
names=$(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
number = lambda text: [int(part) for part in text.split(".")[:2]]
packages = [p for p in json.load(sys.stdin)["packages"] if p["publish"] != [] and number(p["rust_version"]) <= number(sys.argv[1])]
print(*sorted(p["name"] for p in packages))' "$release")
[ -n "$names" ] || skip "no crate has a minimum of Rust $release"
# shellcheck disable=SC2046
cargo check --quiet --locked --profile ci --lib $(printf -- '-p %s ' $names) --target-dir target/msrv/build
echo "Rust $release: $names"
