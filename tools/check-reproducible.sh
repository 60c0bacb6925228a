#!/bin/sh
# Builds a release twice, in folders with different names, and compares its bytes: tools/release.sh says what
# it consists of.
#
# The commit that is checked out is built; the work tree's changes are not.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in a b-with-a-longer-name; do
    git clone -q --shared . "$work/$folder"
    mkdir "$work/$folder/target"
    # The cross compiler and what writes SBOMs are the machine's, and no output of a build.
    for tools in xrust tools; do
        [ ! -d target/$tools ] || ln -s "$PWD/target/$tools" "$work/$folder/target/$tools"
    done
    (cd "$work/$folder" && tools/release.sh build --untagged >build.log 2>&1) || {
        tail -n 30 "$work/$folder/build.log" >&2
        exit 1
    }
    cp "$work/$folder"/target/release-*/SHA256SUMS "$work/$folder.sums"
    # What is left is compared below by its sums; the next build needs the room.
    rm -rf "$work/$folder/target/aarch64" "$work/$folder/target/release"
done
if ! diff "$work"/*.sums; then
    echo "check-reproducible: the two builds differ" >&2
    for folder in a b-with-a-longer-name; do
        mkdir "$work/$folder.files"
        tar -C "$work/$folder.files" --strip-components=1 -xJf "$work/$folder"/target/release-*/*.tar.xz
    done
    diff -rq "$work/a.files" "$work/b-with-a-longer-name.files" >&2 || true
    exit 1
fi
cat "$work/a.sums"
