#!/usr/bin/env bash
# fuzz.sh [DURATION]: runs every native fuzz target of the tree for that long (20s). What one finds is written below
# testdata/fuzz of its package: commit it with the mend.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source test/go.sh
duration=${1:-20s} count=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz fails only on what a target found. Go 1.26 and older report their own deadline as a failure when a worker is busy
# while the time ends (golang/go#75804); a finding is written below testdata, and the deadline alone is not. Inputs that
# are only interesting are made smaller for one second instead of a minute: on a busy machine that took up the whole
# time.
fuzz() { # package target
    local rc=0
    go test -vet=off -run '^$' -fuzz "^$2\$" -fuzztime "$duration" -fuzzminimizetime 1s "./$1" 2>&1 |
        tee "$log" || rc=$?
    ((rc != 0)) || return 0
    if grep -q 'Failing input written' "$log" ||
        [[ $(grep -A 2 -e '^--- FAIL' "$log" | tail -n +2 | tr -s ' \n' ' ') != \
            ' context deadline exceeded FAIL ' ]]; then
        return "$rc"
    fi
    echo "fuzz: $2 found nothing; its time ended while a worker was busy"
}

mapfile -t packages < <(git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | xargs -n1 dirname | sort -u)
for package in "${packages[@]}"; do
    mapfile -t targets < <(git grep -hoE '^func Fuzz[A-Za-z0-9_]+' -- "$package/*_test.go" | sed 's/^func //' | sort)
    for target in "${targets[@]}"; do
        fuzz "$package" "$target"
        count=$((count + 1))
    done
done
((count > 0)) || { echo "fuzz: there is no target" >&2; exit 1; }
echo "$count fuzz targets, $duration each, found nothing"
