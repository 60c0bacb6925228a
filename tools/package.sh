#!/bin/sh
# Makes what a Jetson with JetPack 6 installs, without a compiler there: a tarball and a Debian package of
# nvdiag, llm-demo, libnvgpu_sim.so, libnvdiag_capture.so, the manual pages, the completions, a unit of systemd (not enabled) and
# the licence.
#
#   tools/package.sh            built for speed; into target/packages
#   tools/package.sh --check    built as the checks build, then unpacked and started (in CI under qemu)
#
# Builds for aarch64: by cross compilation on other machines (tools/cross-aarch64.sh says what that needs).
# The programs need glibc 2.35, as JetPack 6 has it; the script fails if they need a newer one.
set -eu
cd "$(dirname "$0")/.."

profile=release check=
case "${1:-}" in
'') ;;
--check) profile=ci check=yes ;;
*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

name=ga10b-toolkit
triple=aarch64-unknown-linux-gnu
if [ "$(uname -m)" = aarch64 ]; then
    runner=
    readelf=readelf
    out=$PWD/target/$profile
    cargo build --profile "$profile" -p nvdiag -p llm-demo -p ga10b-sim-preload -p ga10b-capture-preload
else
    . tools/cross-aarch64.sh
    runner=$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER
    readelf=aarch64-linux-gnu-readelf
    out=$CARGO_TARGET_DIR/$triple/$profile
    cargo build --profile "$profile" --target "$triple" -p nvdiag -p llm-demo -p ga10b-sim-preload -p ga10b-capture-preload
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
packages=$PWD/target/packages
stage=$packages/$name-$version-aarch64
rm -rf "$packages"
mkdir -p "$stage/bin" "$stage/lib/systemd/system" "$stage/share/doc/$name" "$stage/share/man/man1" \
    "$stage/share/bash-completion/completions" "$stage/share/zsh/site-functions" \
    "$stage/share/fish/vendor_completions.d"
install -m 755 "$out/nvdiag" "$out/llm-demo" "$stage/bin"
install -m 644 "$out/libnvgpu_sim.so" "$out/libnvdiag_capture.so" "$stage/lib"
install -m 644 tools/nvdiag-watch.service "$stage/lib/systemd/system"
for file in "$stage"/bin/* "$stage"/lib/*.so; do
    aarch64_strip=$(command -v aarch64-linux-gnu-strip || command -v strip)
    "$aarch64_strip" --strip-debug "$file"
    newest=$($readelf --version-info --wide "$file" | grep -o 'GLIBC_2\.[0-9]*' | sort -t. -k2 -n -u | tail -n 1)
    if [ "${newest#GLIBC_2.}" -gt 35 ]; then
        echo "package: $file needs $newest, and JetPack 6 has GLIBC_2.35" >&2
        exit 1
    fi
done
install -m 644 LICENSE README.md CHANGELOG.md "$stage/share/doc/$name"
cp -r docs "$stage/share/doc/$name/docs"
start() {
    program=$1
    shift
    $runner "$stage/bin/$program" "$@"
}
start nvdiag man "$stage/share/man/man1" >/dev/null
start llm-demo --man "$stage/share/man/man1" >/dev/null
gzip -9n "$stage"/share/man/man1/*.1
start nvdiag completions bash >"$stage/share/bash-completion/completions/nvdiag"
start nvdiag completions zsh >"$stage/share/zsh/site-functions/_nvdiag"
start nvdiag completions fish >"$stage/share/fish/vendor_completions.d/nvdiag.fish"
start llm-demo --completions bash >"$stage/share/bash-completion/completions/llm-demo"
start llm-demo --completions zsh >"$stage/share/zsh/site-functions/_llm-demo"
start llm-demo --completions fish >"$stage/share/fish/vendor_completions.d/llm-demo.fish"
tar -C "$packages" --owner=0 --group=0 --sort=name -cJf "$stage.tar.xz" "$(basename "$stage")"

# The same files below /usr.
deb=$packages/deb
mkdir -p "$deb/DEBIAN" "$deb/usr"
cp -r "$stage"/* "$deb/usr"
mv "$deb/usr/share/zsh/site-functions" "$deb/usr/share/zsh/vendor-completions"
cp LICENSE "$deb/usr/share/doc/$name/copyright"
cat >"$deb/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: arm64
Maintainer: the ga10b toolkit's authors <nobody@example.com>
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Depends: libc6 (>= 2.35), libgcc-s1
Section: devel
Priority: optional
Description: GPU diagnostics and language models for Jetson Orin, without CUDA
 nvdiag explains GPU faults, address maps and driver calls. llm-demo decodes
 quantized language models on the GPU through the kernel driver.
 libnvgpu_sim.so is a software ga10b for programs that use the driver's ioctls.
 libnvdiag_capture.so reads rings in a program for nvdiag trace --submissions.
CONTROL
cat >"$deb/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    cat <<'HINT'
ga10b-toolkit: users of the GPU belong to the group video (sudo usermod -aG video USER, then log in again).
Those who read the kernel log, where the driver reports MMU faults, belong to adm, too.
`nvdiag doctor` says what is not set up. `sudo systemctl enable --now nvdiag-watch` saves each GPU fault.
HINT
fi
POSTINST
chmod 755 "$deb/DEBIAN/postinst"
dpkg-deb --root-owner-group --build "$deb" "$packages/${name}_${version}_arm64.deb" >/dev/null
rm -rf "$deb" "$stage"

if [ -n "$check" ]; then
    tar -C "$packages" -xJf "$stage.tar.xz"
    dpkg-deb -x "$packages/${name}_${version}_arm64.deb" "$packages/root"
    for bin in "$stage/bin" "$packages/root/usr/bin"; do
        $runner "$bin/nvdiag" --version
        $runner "$bin/llm-demo" --version
    done
    $runner "$stage/bin/nvdiag" esr --warp-esr 0x10 | head -n 3
    $runner "$stage/bin/llm-demo" --device sim -n 1
    rm -rf "$stage" "$packages/root"
fi
(cd "$packages" && sha256sum -- *.tar.xz *.deb && ls -lh)
