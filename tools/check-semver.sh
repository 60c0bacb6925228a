#!/bin/sh
# Compares the interfaces of the crates that may be published with those of the last release, by
# cargo-semver-checks, which it installs into target/semver. Exits with 77 before the first release.
set -eu
cd "$(dirname "$0")/.."
release=$(git describe --tags --match 'v*' --abbrev=0 2>/dev/null) || {
    echo "not run: no release, a tag v*, to compare with"
    exit 77
}
[ -x target/semver/bin/cargo-semver-checks ] || cargo install --quiet --locked --root target/semver cargo-semver-checks
names=$(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
print(*sorted(p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] != []))')
# shellcheck disable=SC2046
target/semver/bin/cargo-semver-checks semver-checks --baseline-rev "$release" $(printf -- '-p %s ' $names)
