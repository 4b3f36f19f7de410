#!/usr/bin/env bash
# fuzz.sh [DURATION]: runs every native fuzz target of the tree for that long (20s). What one finds is written below testdata/fuzz of its
# package: commit it with the mend.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOFLAGS=-tags=libvirt_dlopen
duration=${1:-20s} count=0

mapfile -t packages < <(git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | xargs -n1 dirname | sort -u)
for package in "${packages[@]}"; do
    mapfile -t targets < <(git grep -hoE '^func Fuzz[A-Za-z0-9_]+' -- "$package/*_test.go" | sed 's/^func //' | sort)
    for target in "${targets[@]}"; do
        go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "./$package"
        count=$((count + 1))
    done
done
((count > 0)) || { echo "fuzz: there is no target" >&2; exit 1; }
echo "$count fuzz targets, $duration each, found nothing"
