#!/bin/sh
# Builds the packages twice, in folders with different names, and compares their bytes.
#
#   tools/check-reproducible.sh            as a release is built
#   tools/check-reproducible.sh --check    as the checks build: sooner
#
# The commit that is checked out is built; the work tree's changes are not.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in a b-with-a-longer-name; do
    git clone -q --shared . "$work/$folder"
    mkdir "$work/$folder/target"
    # The cross compiler is the machine's, and no output of a build.
    [ ! -d target/xrust ] || ln -s "$PWD/target/xrust" "$work/$folder/target/xrust"
    (cd "$work/$folder" && tools/package.sh "$@" >build.log 2>&1) || {
        tail -n 30 "$work/$folder/build.log" >&2
        exit 1
    }
    (cd "$work/$folder/target/packages" && sha256sum -- *.tar.xz *.deb) >"$work/$folder.sums"
    # What is left is compared below by its sums; the next build needs the room.
    rm -rf "$work/$folder/target/aarch64"
done
if ! diff "$work"/*.sums; then
    echo "check-reproducible: the two builds differ" >&2
    for folder in a b-with-a-longer-name; do
        mkdir "$work/$folder.files"
        tar -C "$work/$folder.files" --strip-components=1 -xJf "$work/$folder"/target/packages/*.tar.xz
    done
    diff -rq "$work/a.files" "$work/b-with-a-longer-name.files" >&2 || true
    exit 1
fi
cat "$work/a.sums"
