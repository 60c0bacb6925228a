#!/bin/sh
# Packs every crate that may be published, and prints the sizes.
#
#   tools/check-packages.sh            packs, and looks for what each package must hold
#   tools/check-packages.sh --build    also builds each one from its package against the packages of the others,
#                                      and checks that the tests which a package holds compile without the rest
#                                      of the repository, that its documentation is made as docs.rs makes it,
#                                      without the network and the tools of the checks, and what `cargo publish`
#                                      checks before it uploads
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
'') build= ;;
--build) build=yes ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
packed=$PWD/target/package
rm -rf "$packed"

# The names of the crates, their features but the one that needs libclang, or those that docs.rs turns on.
list() {
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
packages = [p for p in json.load(sys.stdin)["packages"] if p["publish"] != []]
features = {p["name"] + "/" + f for p in packages for f in p["features"] if f not in ("bindgen", "default")}
documented = {p["name"] + "/" + f for p in packages for f in p["metadata"]["docs"]["rs"].get("features", [])}
print(*sorted({"names": {p["name"] for p in packages}, "features": features, "documented": documented}[sys.argv[1]]))' "$1"
}
names=$(list names)
# shellcheck disable=SC2046
cargo package --quiet --allow-dirty --no-verify $(printf -- '-p %s ' $names)

build() {
    # With the time of now: packed files all have one old date, by which cargo would take them for known.
    for crate in "$packed"/*.crate; do tar -xzmf "$crate" -C "$packed"; done

    # The packages as a workspace of their own. Dependencies come from the lock file and the build folder of this
    # one.
    cp Cargo.lock "$packed"
    (
        cd "$packed"
        echo '[workspace]'
        echo 'resolver = "3"'
        for name in $names; do
            echo "$name $(echo "$name"-[0-9]*/)"
        done | awk '{ members = members "\"" $2 "\", "; patches = patches $1 " = { path = \"" $2 "\" }\n" }
            END { printf "members = [%s]\n[patch.crates-io]\n%s", members, patches }'
        sed -n '/^\[profile/,$p' ../../Cargo.toml
    ) >"$packed/Cargo.toml"
    # `cargo package` would build each against copies of the others that cargo keeps per name and version, which
    # are not replaced when a crate changes. So they are built here: alone, and with all features and targets.
    cargo check --quiet --profile ci --lib --workspace --manifest-path "$packed/Cargo.toml" --target-dir target
    cargo check --quiet --profile ci --all-targets --workspace --features "$(list features)" \
        --manifest-path "$packed/Cargo.toml" --target-dir target
    env -i HOME="$HOME" PATH="$PATH" ${CARGO_HOME:+CARGO_HOME="$CARGO_HOME"} ${RUSTUP_HOME:+RUSTUP_HOME="$RUSTUP_HOME"} \
        RUSTDOCFLAGS="-D warnings" cargo doc --quiet --offline --no-deps --lib --profile ci --workspace \
        --features "$(list documented)" --manifest-path "$packed/Cargo.toml" --target-dir target
    # shellcheck disable=SC2046
    cargo publish --quiet --dry-run --allow-dirty --no-verify $(printf -- '-p %s ' $names)
}
if [ -n "$build" ]; then build; fi

for name in $names; do
    crate=$(echo "$packed/$name"-[0-9]*.crate)
    for file in README.md LICENSE; do
        tar -tzf "$crate" | grep -q "/$file\$" || {
            echo "$name: the package lacks $file" >&2
            exit 1
        }
    done
    printf '%-12s %4d files %7d bytes\n' "$name" "$(tar -tzf "$crate" | wc -l)" "$(wc -c <"$crate")"
done
