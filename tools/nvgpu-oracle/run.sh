#!/usr/bin/env bash
# The drivers' own code as an oracle: builds it from a tree in user space, and compares the software ga10b
# and nvdiag with it.
#
#   tools/nvgpu-oracle/run.sh TREE [--seeds N] [--first SEED]   N new random sequences (1000) from a seed of the clock
#   tools/nvgpu-oracle/run.sh TREE --write NAME                 writes the committed records anew; NAME is the tree's release
#
# TREE is a checkout of nvgpu: the folder that holds common/, hal/ and include/, or one above it. Or it is one of
# linux-nv-oot, which holds nvmap. Needs gcc 12 and make. What is built lies in
# target/nvgpu-oracle; only what the tree's code answers is kept.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tools/nvgpu-oracle
build=${CARGO_TARGET_DIR:-$root/target}/nvgpu-oracle
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }

[ $# -ge 1 ] || usage
tree='' nvmap=''
for folder in "$1" "$1/drivers/gpu/nvgpu" "$1/nvgpu/drivers/gpu/nvgpu"; do
    [ -f "$folder/common/mm/vm.c" ] && tree=$(cd "$folder" && pwd) && break
done
if [ -f "$1/drivers/video/tegra/nvmap/nvmap_ioctl.c" ]; then
    tree=$(cd "$1" && pwd) nvmap=nvmap here=$here/nvmap build=$build/nvmap
fi
[ -n "$tree" ] || { echo "$1: neither nvgpu (common/mm/vm.c) nor nvmap in it" >&2; exit 2; }
shift
seeds=1000 first=$(date +%s)0000 name=
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --seeds) seeds=$2 ;;
        --first) first=$2 ;;
        --write) name=$2 ;;
        *) usage ;;
    esac
    shift 2
done

mkdir -p "$build"
make -s -j"$(nproc)" -C "$here" TREE="$tree" BUILD="$build"
cd "$root"

# run KIND FIRST COUNT
run() {
    case $1 in
        nvmap) "$build/memory-requests" "$2" "$3" ;;
        requests) "$build/requests" "$2" "$3" ;;
        *) "$build/oracle" "$@" ;;
    esac
}

# record KIND COUNT FILE: committed, with where it comes from.
record() {
    {
        echo "# What the ${nvmap:-nvgpu} driver does, recorded by its own code: see tools/nvgpu-oracle and docs/nvgpu-oracle.md."
        echo "# release: $name"
        digest=digest && [ "$1" != requests ] || digest=digest-requests
        echo "# files: sha256 $(make -s -C "$here" TREE="$tree" BUILD="$build" "$digest")"
        echo "# command: tools/nvgpu-oracle/run.sh TREE --write '$name' (oracle $1 1 $2)"
        run "$1" 1 "$2"
    } | gzip -9n >"$3"
    printf '%-40s %8d bytes\n' "$3" "$(stat -c %s "$3")"
}
if [ -n "$name" ] && [ -n "$nvmap" ]; then
    record nvmap 300 sim/tests/data/nvmap-requests.txt.gz
    exit
elif [ -n "$name" ]; then
    record sequences 300 sim/tests/data/nvgpu-address-spaces.txt.gz
    record images 60 diag/tests/data/nvgpu-page-tables.txt.gz
    record faults 2000 diag/tests/data/nvgpu-faults.txt.gz
    record requests 300 sim/tests/data/nvgpu-requests.txt.gz
    exit
fi

cargo test -q --release --no-run -p ga10b-sim -p nvdiag --test it
failed=0
# compare KIND VARIABLE PACKAGE TEST FIRST COUNT
compare() {
    run "$1" "$5" "$6" >"$build/$1.txt"
    env "$2=$build/$1.txt" cargo test -q --release -p "$3" --test it -- --nocapture --exact "oracle::$4" >"$build/$1.log" 2>&1 || {
        failed=1
        echo "$1: differences, seeds $5 and up; see $build/$1.log" >&2
    }
    grep -E '^(Counts|[0-9]+ images|\{)' "$build/$1.log" || true
}
for ((done = 0; done < seeds; done += 2000)); do
    count=$((seeds - done < 2000 ? seeds - done : 2000)) seed=$((first + done))
    echo "seeds $seed to $((seed + count - 1))"
    if [ -n "$nvmap" ]; then
        compare nvmap NVGPU_ORACLE_NVMAP ga10b-sim nvmap::nvmap_answers_as_its_own_code "$seed" "$count"
        continue
    fi
    compare sequences NVGPU_ORACLE ga10b-sim address_spaces_are_those_of_the_driver "$seed" "$count"
    compare requests NVGPU_ORACLE_REQUESTS ga10b-sim requests::requests_are_answered_as_by_the_driver "$seed" "$count"
    compare images NVGPU_ORACLE_IMAGES nvdiag page_tables_of_the_driver_are_read_as_they_were_meant "$seed" $(((count + 9) / 10))
    compare faults NVGPU_ORACLE_FAULTS nvdiag faults_that_the_driver_prints_are_read_as_what_happened "$seed" "$count"
done
exit $failed
