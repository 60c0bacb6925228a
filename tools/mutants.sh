#!/usr/bin/env bash
# Mutation tests: breaks the code in one place at a time, and reports what no test notices. Needs cargo-mutants
# (cargo install cargo-mutants --locked --version 27.1.0).
#
#   tools/mutants.sh CRATE...            all of qmd, samples of hcq, diag, sim (scores: docs/notes/mutants.md)
#   tools/mutants.sh CRATE K/N           every N-th mutant of a crate, from the K-th on (0/1: all of them)
#   tools/mutants.sh CRATE K/N ARG...    the same with arguments of cargo-mutants, as --re '^qmd/src/cache'
#
# A crate's own tests decide: first its quick ones, then the others for what those have missed. The source is
# changed in place and restored: nothing else may build or edit here meanwhile. target/mutants-CRATE has the
# results: survivors.txt, and of each pass mutants.out/{caught,missed,timeout,unviable}.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
# Property tests draw the same cases each time, and write no files of failures.
export PROPTEST_RNG_SEED=1 PROPTEST_DISABLE_FAILURE_PERSISTENCE=true
# What a mutant does not change need not be compiled again.
export CARGO_INCREMENTAL=1
# A loop without an end may take memory without an end.
ulimit -d 6000000

# mutate CRATE K/N ARG...
mutate() {
    local crate=$1 shard=$2 package=$1 first=--lib second=--test=it out=target/mutants-$1 opt=1 missed
    shift 2
    case $crate in
    # Compiles thrice as fast without optimization, and runs as fast.
    qmd) package=nv-qmd first=--test=it second=--lib opt=0 ;;
    sim) package=ga10b-sim opt=3 ;;
    diag) package=nvdiag ;;
    esac
    rm -rf "$out"
    # pass NAME TESTS ARG...
    pass() {
        local into=$out/$1 tests=$2
        shift 2
        mkdir -p "$into"
        # 2: survivors, 3: time-outs; both are results.
        # A constant may be one that the compiler computes for ever.
        nice -n 19 cargo mutants --in-place --package "$package" --output "$into" --cargo-arg="$tests" \
            --build-timeout 600 \
            --cargo-arg="--config=profile.ci.package.$package.opt-level=$opt" "$@" || [[ $? =~ ^[23]$ ]]
    }
    echo "== $crate, shard $shard"
    pass first "$first" --shard "$shard" --sharding round-robin "$@"
    # The names of the missed as regular expressions.
    mapfile -t missed < <(sed 's/[][\.*^$+?(){}|&]/\\&/g; s/.*/--re=^&$/' "$out/first/mutants.out/missed.txt")
    : >"$out/survivors.txt"
    [ ${#missed[@]} -gt 0 ] || return 0
    pass second "$second" "${missed[@]}"
    # Those that delete a field are made whatever is asked for: the second pass has some that the first has killed.
    grep -Fxf "$out"/{first,second}/mutants.out/missed.txt >"$out/survivors.txt" || true
}
# The sample of a crate.
sample() {
    case $1 in
    qmd) mutate qmd 0/1 ;;
    hcq) mutate hcq 0/7 ;;
    diag) mutate diag 0/48 ;;
    sim) mutate sim 0/32 ;;
    *)
        echo "no sample of $1" >&2
        return 1
        ;;
    esac
}

if [ $# -ge 2 ] && [[ $2 == */* ]]; then
    mutate "$@"
else
    for crate in "${@:?names of crates}"; do sample "$crate"; done
fi
