# Sourced by the scripts that build for aarch64-unknown-linux-gnu on another machine: sets Cargo's environment up.
#
# Works on a Debian or Ubuntu x86-64 machine; needs root for the first set-up (a cross linker and qemu-user
# from the distribution's packages). The aarch64 standard library comes with the distribution's own rustc,
# unpacked into target/xrust and not installed. The current directory is the repository's root.

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
        echo "cross-aarch64: the distribution has no multi-arch rustc-web package" >&2
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
# The same bytes from any folder: the package's, and for all builds here, so that they share what is compiled.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="$(tools/remap-paths.sh)"
unset RUSTC_WRAPPER RUSTUP_TOOLCHAIN 2>/dev/null || true
