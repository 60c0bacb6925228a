#!/bin/sh
# Makes what a Jetson with JetPack 6 or 7 installs, without a compiler there, and what a machine with an x86-64
# processor does for the desktop driver or the software GPU alone: a tarball and a Debian package
# of nvdiag, llm-demo, libhcq.so, libnvgpu_sim.so, libnvdiag_capture.so, the manual pages, the completions, the
# documentation, a unit of systemd (not enabled) and the licence. What C and C++ programs are compiled with
# is in the tarball and in a Debian package of its own.
#
#   tools/package.sh            built for speed; into target/packages
#   tools/package.sh --check    built as the checks build, then unpacked and started (in CI under qemu)
#   tools/package.sh --amd64    for x86-64, on such a machine; also with --check
#
# The files are ga10b-toolkit-VERSION-aarch64.tar.xz, ga10b-toolkit_VERSION_arm64.deb and
# ga10b-toolkit-dev_VERSION_arm64.deb, or those with x86_64 and amd64. The same commit and
# the same compiler give the same bytes (tools/check-reproducible.sh): times are the commit's, or
# SOURCE_DATE_EPOCH.
#
# Builds for aarch64 by cross compilation on other machines (tools/cross-aarch64.sh says what that needs).
# The programs need glibc 2.35, as JetPack 6 has it (Ubuntu 22.04); JetPack 7 has 2.39 (Ubuntu 24.04). The
# script fails if they need a newer one, or another library.
set -eu
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

profile=release check='' machine=aarch64 arch=arm64
for option; do
    case "$option" in
    --check) profile=ci check=yes ;;
    --amd64) machine=x86_64 arch=amd64 ;;
    *) sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
fail() {
    echo "package: $*" >&2
    exit 1
}

name=ga10b-toolkit
maintainer="the ga10b toolkit's authors <nobody@example.com>"
triple=$machine-unknown-linux-gnu
crates="-p nvdiag -p llm-demo -p hcq-c -p ga10b-sim-preload -p ga10b-capture-preload"
if [ "$(uname -m)" = $machine ]; then
    runner=
    readelf=readelf strip=strip cc=cc
    out=$PWD/target/$triple/$profile
    export CARGO_ENCODED_RUSTFLAGS="$(tools/remap-paths.sh | tr ' ' '\037')"
    # shellcheck disable=SC2086
    cargo build --profile "$profile" --target "$triple" $crates
else
    [ $machine = aarch64 ] || fail "packages for x86-64 are built on x86-64"
    . tools/cross-aarch64.sh
    runner=$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER
    readelf=aarch64-linux-gnu-readelf strip=aarch64-linux-gnu-strip cc=aarch64-linux-gnu-gcc
    out=$CARGO_TARGET_DIR/$triple/$profile
    # shellcheck disable=SC2086
    cargo build --profile "$profile" --target "$triple" $crates
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
packages=$PWD/target/packages
stage=$packages/$name-$version-$machine
tarball=$stage.tar.xz
package=$packages/${name}_${version}_$arch.deb
dev=$packages/${name}-dev_${version}_$arch.deb
rm -rf "$packages"/*"$machine"* "$packages"/*"$arch".deb "$packages"/deb "$packages"/deb-dev
mkdir -p "$stage/bin" "$stage/lib/systemd/system" "$stage/share/doc/$name" "$stage/share/man/man1" \
    "$stage/share/bash-completion/completions" "$stage/share/zsh/site-functions" \
    "$stage/share/fish/vendor_completions.d"
install -m 755 "$out/nvdiag" "$out/llm-demo" "$stage/bin"
install -m 644 "$out/libnvgpu_sim.so" "$out/libnvdiag_capture.so" "$stage/lib"
CC=$cc tools/c-library.sh "$out/libhcq_c.a" "$stage"
"$strip" --strip-debug "$stage/lib/libhcq.a"
install -m 644 tools/nvdiag-watch.service "$stage/lib/systemd/system"
for file in "$stage"/bin/* "$stage"/lib/libnv*.so "$stage/lib/libhcq.so.$version"; do
    "$strip" --strip-debug "$file"
    newest=$($readelf --version-info --wide "$file" | grep -o 'GLIBC_2\.[0-9]*' | sort -t. -k2 -n -u | tail -n 1)
    [ "${newest#GLIBC_2.}" -le 35 ] || fail "$file needs $newest, and JetPack 6 has GLIBC_2.35"
    # What the package's dependencies, libc6 and libgcc-s1, bring.
    other=$($readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(lib(c|m|pthread|dl|rt)\.so\.[0-9]|ld-linux-(aarch64|x86-64)\.so\.[0-9]|libgcc_s\.so\.1)$' || true)
    [ -z "$other" ] || fail "$file needs $other, and the package depends on libc6 and libgcc-s1 alone"
    # Nothing of the machine that built it.
    ! grep -qF -e "$PWD" -e "${CARGO_HOME:-$HOME/.cargo}/" "$file" || fail "$file names folders of this machine"
done
install -m 644 LICENSE README.md CHANGELOG.md "$stage/share/doc/$name"
cp -r docs "$stage/share/doc/$name/docs"
[ $arch = amd64 ] || for file in "$(basename "$tarball")" "$(basename "$package")" "$(basename "$dev")"; do
    grep -qF "$file" README.md || fail "README.md does not name $file"
done
start() {
    program=$1
    shift
    $runner "$stage/bin/$program" "$@"
}
start nvdiag man "$stage/share/man/man1" >/dev/null
start llm-demo man "$stage/share/man/man1" >/dev/null
gzip -9n "$stage"/share/man/man1/*.1
start nvdiag completions bash >"$stage/share/bash-completion/completions/nvdiag"
start nvdiag completions zsh >"$stage/share/zsh/site-functions/_nvdiag"
start nvdiag completions fish >"$stage/share/fish/vendor_completions.d/nvdiag.fish"
start llm-demo completions bash >"$stage/share/bash-completion/completions/llm-demo"
start llm-demo completions zsh >"$stage/share/zsh/site-functions/_llm-demo"
start llm-demo completions fish >"$stage/share/fish/vendor_completions.d/llm-demo.fish"
examples=$stage/share/doc/$name/examples
mkdir -p "$examples/kernels"
install -m 644 hcq-c/examples/*.c hcq-c/examples/*.cpp hcq-c/examples/*.h hcq-c/examples/tsan.supp "$examples"
install -m 644 hcq/examples/kernels/*.ptx hcq/examples/kernels/*.cubin "$examples/kernels"
install -D -m 644 -t "$examples/kernels/ptxgen" hcq/examples/kernels/ptxgen/*.cubin
# Names in order, no user, the commit's time, one thread: what would differ from machine to machine.
tar -C "$packages" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX \
    --mtime="@$SOURCE_DATE_EPOCH" -c "$(basename "$stage")" | xz -6 -T1 >"$tarball"

# The same files below /usr, with the names that Debian's policy has for three of them.
deb=$packages/deb
mkdir -p "$deb/DEBIAN" "$deb/usr"
cp -r "$stage"/* "$deb/usr"
mv "$deb/usr/share/zsh/site-functions" "$deb/usr/share/zsh/vendor-completions"
mv "$deb/usr/share/doc/$name/LICENSE" "$deb/usr/share/doc/$name/copyright"
gzip -9n >"$deb/usr/share/doc/$name/changelog.gz" <<CHANGES
$name ($version) unstable; urgency=medium

  * /usr/share/doc/$name/CHANGELOG.md says what changed.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGES
# What programs are compiled with goes to a package of its own.
devdeb=$packages/deb-dev
mkdir -p "$devdeb/DEBIAN" "$devdeb/usr/lib" "$devdeb/usr/share/doc"
mv "$deb/usr/include" "$devdeb/usr"
mv "$deb/usr/lib/pkgconfig" "$deb/usr/lib/cmake" "$deb/usr/lib/libhcq.so" "$deb/usr/lib/libhcq.a" "$devdeb/usr/lib"
ln -s "$name" "$devdeb/usr/share/doc/$name-dev"
# The sum of the files in whole KiB: `du` would count the blocks of this machine's file system.
size_of() {
    find "$1" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }'
}
size=$(size_of "$deb/usr")
cat >"$deb/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $size
Depends: libc6 (>= 2.35), libgcc-s1
Section: devel
Priority: optional
Description: GPU diagnostics and language models for Jetson Orin, without CUDA
 nvdiag explains GPU faults, address maps and driver calls. llm-demo decodes
 quantized language models on the GPU through the kernel driver: nvgpu, or the
 desktop driver.
 libnvgpu_sim.so is a software ga10b for programs that use the driver's ioctls.
 libnvdiag_capture.so reads rings in a program for nvdiag trace --submissions.
CONTROL
cat >"$deb/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    cat <<'HINT'
ga10b-toolkit: `nvdiag doctor` says what is not set up for the GPU, and what to do. Its users belong to the
group video (sudo usermod -aG video USER, then log in again).
`sudo systemctl enable --now nvdiag-watch` saves each GPU fault.
HINT
fi
POSTINST
chmod 755 "$deb/DEBIAN/postinst"
# The loader's list of libraries is made anew: the two are found by name in LD_PRELOAD.
echo 'activate-noawait ldconfig' >"$deb/DEBIAN/triggers"
cat >"$devdeb/DEBIAN/control" <<CONTROL
Package: $name-dev
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(size_of "$devdeb/usr")
Depends: $name (= $version), libc6-dev
Section: libdevel
Priority: optional
Description: hardware command queues for C and C++ programs
 hcq.h, hcq.hpp, libhcq.a and the files by which pkg-config and CMake find them:
 launches kernels on a Jetson's GPU through the kernel driver, without CUDA.
CONTROL
build() {
    (cd "$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$1/DEBIAN/md5sums"
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz -z6 --build "$1" "$2" >/dev/null
}
build "$deb" "$package"
build "$devdeb" "$dev"
rm -rf "$deb" "$devdeb" "$stage"

if [ -n "$check" ]; then
    tar -C "$packages" -xJf "$tarball"
    dpkg-deb -x "$package" "$packages/root"
    for bin in "$stage/bin" "$packages/root/usr/bin"; do
        $runner "$bin/nvdiag" --version
        $runner "$bin/llm-demo" --version
    done
    $runner "$stage/bin/nvdiag" esr --warp-esr 0x10 | head -n 3
    $runner "$stage/bin/llm-demo" --device sim -n 1
    for page in nvdiag llm-demo; do
        [ -s "$packages/root/usr/share/man/man1/$page.1.gz" ] || fail "no manual page of $page"
    done
    (cd "$packages/root" && dpkg-deb --ctrl-tarfile "$package" | tar -xO ./md5sums | md5sum --check --quiet)
    # Where the packages are, C programs are compiled and run.
    dpkg-deb -x "$dev" "$packages/root"
    for prefix in "$stage" "$packages/root/usr"; do
        examples=$prefix/share/doc/$name/examples
        "$cc" -std=c11 -Wall -Werror "$examples/01_vecadd.c" -o "$packages/vecadd" -I "$prefix/include" \
            -DKERNELS="\"$examples/kernels\"" -L "$prefix/lib" -lhcq -Wl,-rpath,"$prefix/lib"
        HCQ_DEVICE=sim $runner "$packages/vecadd"
        rm "$packages/vecadd"
    done
    rm -rf "$stage" "$packages/root"
fi
(cd "$packages" && sha256sum -- *.tar.xz *.deb && ls -lh)
