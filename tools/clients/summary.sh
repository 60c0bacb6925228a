#!/bin/sh
# Prints one line of a suite's passed, failed, skipped and seconds, from what pytest printed, once or several times.
#
#   tools/clients/summary.sh            the line above the others
#   tools/clients/summary.sh SUITE LOG
set -eu
if [ $# -eq 0 ]; then
    printf '%-28s %7s %7s %8s %8s\n' suite passed failed skipped seconds
    exit
fi
# One summary of each run: "3 failed, 407 passed, 7 skipped, 157 subtests passed in 535.65s (0:08:55)".
grep -E '(passed|failed|skipped|error).* in [0-9.]+s' "$2" | awk -v suite="$1" '{
    for (i = 2; i <= NF; i++) {
        count = $(i - 1)
        if ($i ~ /^passed/ && count ~ /^[0-9]+$/) passed += count
        if ($i ~ /^(failed|errors?)/) failed += count
        if ($i ~ /^skipped/) skipped += count
        if ($i == "in") seconds += $(i + 1)
    }
} END {
    if (NR == 0) { printf "%-28s did not end\n", suite; exit }
    printf "%-28s %7d %7d %8d %8.0f\n", suite, passed, failed, skipped, seconds
}'
