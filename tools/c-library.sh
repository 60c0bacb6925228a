#!/bin/sh
# Installs the C library below a folder, as PREFIX/include, PREFIX/lib, PREFIX/lib/pkgconfig and PREFIX/lib/cmake.
#
#   cargo build --release -p hcq-c
#   tools/c-library.sh target/release/libhcq_c.a PREFIX
#
# Links libhcq.so from the archive: rustc gives a shared library an unnamed version of its own, beside which no
# linker takes a named one. CC is the compiler driver. The files name no folder: PREFIX may be moved.
set -eu
[ $# = 2 ] || {
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2
}
archive=$1 prefix=$2
root=$(cd "$(dirname "$0")/.." && pwd)
crate=$root/hcq-c
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
lib=$prefix/lib
mkdir -p "$prefix/include" "$lib/pkgconfig" "$lib/cmake/hcq"
install -m 644 "$crate/include/hcq.h" "$crate/include/hcq.hpp" "$prefix/include"
install -m 644 "$archive" "$lib/libhcq.a"
# A program that unloads it leaves threads of the software GPU behind: it stays (nodelete).
${CC:-cc} -shared -o "$lib/libhcq.so.$version" -Wl,-soname,libhcq.so.0 -Wl,--version-script="$crate/libhcq.map" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -Wl,--gc-sections -Wl,--no-undefined \
    -Wl,-z,relro,-z,now,-z,nodelete -lgcc_s -lpthread -lm -ldl -lc
chmod 644 "$lib/libhcq.so.$version"
ln -sf "libhcq.so.$version" "$lib/libhcq.so.0"
ln -sf libhcq.so.0 "$lib/libhcq.so"
for file in hcq.pc hcqConfig.cmake hcqConfigVersion.cmake; do
    to=$lib/cmake/hcq
    [ "$file" != hcq.pc ] || to=$lib/pkgconfig
    sed "s/@VERSION@/$version/g" "$crate/$file.in" >"$to/$file"
    chmod 644 "$to/$file"
done
