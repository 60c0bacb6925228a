#!/bin/sh
# Makes all that a release consists of, from its tag.
#
#   tools/release.sh prepare VERSION   writes the version into manifests, lock file, documentation and CHANGELOG.md;
#                                      then commit, and tag the commit vVERSION
#   tools/release.sh build             at the tag, into target/release-VERSION: crates in the order in which they are
#                                      published, wheels for Python, tarball and Debian packages, a list of what
#                                      each was built of (CycloneDX), SHA256SUMS
#   tools/release.sh build --untagged  the same of a commit that has no tag
#
# The same commit gives the same bytes (tools/check-reproducible.sh): times are the commit's. Nothing is uploaded;
# `build` ends with the commands that do it. Needs what tools/package.sh and tools/python-wheel.sh need.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

fail() {
    echo "release: $*" >&2
    exit 1
}
usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$0"
    exit 2
}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The crates that are published, each after those that it needs.
in_order() {
    cargo metadata --format-version 1 --no-deps | python3 -c '
import graphlib, json, sys
packages = {p["name"]: p for p in json.load(sys.stdin)["packages"] if p["publish"] != []}
needs = {n: [d["name"] for d in p["dependencies"] if d["name"] in packages and d["name"] != n and d["kind"] != "dev"]
         for n, p in packages.items()}
print(*graphlib.TopologicalSorter(needs).static_order())'
}

prepare() {
    new=$1
    echo "$new" | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$' || fail "$new is no version as 1.2.3"
    [ -z "$(git status --porcelain)" ] || fail "the work tree has changes: commit them first"
    ! grep -q "^## $new " CHANGELOG.md || fail "CHANGELOG.md has a version $new already"
    awk '/^## /{n++} n == 1 && /^- /{found = 1} END{exit !found}' CHANGELOG.md || fail "nothing is unreleased"
    old=$(echo "$version" | sed 's/\./\\./g')
    sed -i "s/^version = \"$old\"/version = \"$new\"/; s/\(path = \"[a-z/-]*\", version = \)\"$old\"/\1\"$new\"/" Cargo.toml
    sed -i "s/version = \"$old\"/version = \"$new\"/" flake.nix
    sed -i "s/\(ga10b-toolkit\(-dev\)\?[-_]\)$old\([-_]a\)/\1$new\3/g" README.md docs/jetson.md
    sed -i "s/^## Unreleased\$/## Unreleased\n\n## $new - $(date -u +%Y-%m-%d)/" CHANGELOG.md
    cargo update --quiet --workspace
    git --no-pager diff --stat
    echo "Run .ci/run, then: git commit -am 'Version $new' && git tag -a v$new -m 'Version $new'"
}

build() {
    if [ "${1:-}" != --untagged ]; then
        [ -z "$(git status --porcelain)" ] || fail "the work tree has changes, which a tag does not have"
        git tag --points-at HEAD | grep -qx "v$version" || fail "this commit is not tagged v$version (Cargo.toml's version)"
        grep -q "^## $version - " CHANGELOG.md || fail "CHANGELOG.md has no version $version: tools/release.sh prepare"
        ! grep -q '^repository = "https://example.com' Cargo.toml || fail "Cargo.toml's repository is a placeholder"
    fi
    release=$PWD/target/release-$version
    rm -rf "$release"
    mkdir -p "$release/crates" "$release/sbom"

    tools/check-packages.sh
    in_order | tr ' ' '\n' >"$release/crates/ORDER"
    for name in $(in_order); do cp "target/package/$name-$version.crate" "$release/crates"; done
    tools/package.sh
    [ "$(uname -m)" != x86_64 ] || tools/package.sh --amd64
    cp target/packages/*-"$version"-*.tar.xz target/packages/*_"$version"_*.deb "$release"
    tools/python-wheel.sh
    cp target/wheels/*.whl "$release"
    sbom
    (cd "$release" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS && cat SHA256SUMS)
    cat <<NEXT
To publish: cargo publish $(printf -- '-p %s ' $(in_order))
            twine upload $release/*.whl
            and the other files beside the tag v$version
NEXT
}

# What each program and library is built of, without the name of this folder.
sbom() {
    [ -x target/tools/bin/cargo-cyclonedx ] ||
        cargo install --quiet --locked --debug --version 0.5.9 --root target/tools cargo-cyclonedx
    PATH=$PWD/target/tools/bin:$PATH \
        cargo cyclonedx --quiet --format json --spec-version 1.5 --target all --override-filename bom
    for package in diag llm-demo hcq-c hcq-py sim/preload capture/preload; do
        sed "s|file://$PWD/|file:///|g" "$package/bom.json" >"$release/sbom/$(echo $package | tr / -).cdx.json"
    done
    git ls-files --others -- bom.json '*/bom.json' | xargs -r rm
}

case "${1:-}" in
prepare) [ $# -eq 2 ] || usage; prepare "$2" ;;
build) [ $# -le 2 ] && [ "${2:---untagged}" = --untagged ] || usage; build "${2:-}" ;;
*) usage ;;
esac
