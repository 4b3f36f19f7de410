#!/usr/bin/env bash
# compile.sh COMMAND... runs a build of Go programs whose compilers and linkers collect no garbage as long as there is
# memory: a fifth of the time (docs/develop/benchmarks.md). What they write is the same to the byte.
#
# Each may use its share of half of the memory that is free, and 2 GiB at most; COMPILE_BUILDS is how many builds run
# side by side (default 1). Where that is less than 1 GiB, or where the caller has set GOGC or GOMEMLIMIT, nothing
# changes. Programs that COMMAND starts have the settings too: it is for builds, not for tests.
set -euo pipefail

free=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo) # MiB
share=$((free / 2 / $(nproc) / ${COMPILE_BUILDS:-1}))
((share <= 2048)) || share=2048
if [[ -z ${GOGC:-}${GOMEMLIMIT:-} ]] && ((share >= 1024)); then
    export GOGC=off GOMEMLIMIT=${share}MiB
fi
exec "$@"
