#!/usr/bin/env bash
# The end-to-end runs on real VMs, in a lab of their own that is taken down again. Needs bin/director and bin/directorctl (make build).
#
#   e2e.sh            the first day: create over a kill -9, look from outside, run by hand, delete
#   e2e.sh days       the days after: drain, delete, rejoin, scale, upgrade from the older minor
#   e2e.sh mend       an outer plan's phases, a destroyed VM, scale in
#   e2e.sh ha         three masters behind a virtual address: one off and on, the first out and in, upgrade, a dead one replaced
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export LAB_DIR=${LAB_DIR:-/run/director-lab-e2e} LAB_DATA=${LAB_DATA:-/var/lib/director-lab-e2e}
export KAAS_E2E_ROOT=$root KAAS_E2E_DIR=${KAAS_E2E_DIR:-/var/lib/director-e2e}
lab=$root/test/lab/lab
declare -A plays=([first]=TestEndToEnd [days]=TestDays [mend]=TestMend [ha]=TestHighlyAvailable)
run=${plays[${1:-first}]:?"no such play: $1"}

bundle() { "$root/images/release/build.sh" --kubernetes "$1" | tail -n 1; }
image() { "$root/images/node/build.sh" --release "$1" | tail -n 1; }

"$root/test/lab/need.sh" ansible openssh-client curl
KAAS_E2E_BUNDLE=$(bundle 1.37)
KAAS_E2E_IMAGE=$(image "$KAAS_E2E_BUNDLE")
export KAAS_E2E_BUNDLE KAAS_E2E_IMAGE
if [[ $run != TestEndToEnd ]]; then
    KAAS_E2E_OLD_BUNDLE=$(bundle 1.36)
    KAAS_E2E_OLD_IMAGE=$(image "$KAAS_E2E_OLD_BUNDLE")
    export KAAS_E2E_OLD_BUNDLE KAAS_E2E_OLD_IMAGE
fi

finish() { # KAAS_E2E_KEEP keeps the lab and the files of a run, to look at
    [[ -n ${KAAS_E2E_KEEP:-} ]] && return
    "$lab" down
    rm -rf "$KAAS_E2E_DIR"
}
trap finish EXIT
"$lab" down
rm -rf "$KAAS_E2E_DIR"
mkdir -p "$KAAS_E2E_DIR"
"$lab" up
cd "$root"
GOFLAGS=-tags=libvirt_dlopen go test -c -o bin/e2e.test ./test/e2e
cd "$root/test/e2e"
"$lab" exec -- "$root/bin/e2e.test" -test.v -test.timeout 170m -test.run "^$run\$"
