#!/bin/sh
# The long form of tests/tests/soak.rs: 1,000,000 launches; 8 threads of launches, copies and frees for 60 s;
# 10,000 queues; 720 orders of drops; each call of the driver that fails in three manners; 100 processes that are
# killed, 100 forks, three processes at once for 60 s. On the software ga10b, or the device that HCQ_DEVICE names.
#
#   tools/soak.sh [hcq-soak's arguments]
#
# SOAK_LAUNCHES, SOAK_THREADS, SOAK_SECONDS, SOAK_QUEUES, SOAK_ORDERS, SOAK_FAILURES (each how many-th call
# fails) and SOAK_KILLS replace the numbers; BIN names a folder with a built hcq-soak, where nothing can be
# compiled.
set -eu
cd "$(dirname "$0")/.."
export SOAK_LAUNCHES="${SOAK_LAUNCHES:-1000000}" SOAK_THREADS="${SOAK_THREADS:-8}" SOAK_SECONDS="${SOAK_SECONDS:-60}"
export SOAK_QUEUES="${SOAK_QUEUES:-10000}" SOAK_ORDERS="${SOAK_ORDERS:-720}"
export SOAK_FAILURES="${SOAK_FAILURES:-1}" SOAK_KILLS="${SOAK_KILLS:-100}"
if [ -n "${BIN:-}" ]; then
    exec "$BIN/hcq-soak" "$@"
fi
exec cargo run --release -p ga10b-tests --bin hcq-soak -- "$@"
