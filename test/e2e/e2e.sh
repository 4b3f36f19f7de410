#!/usr/bin/env bash
# The end-to-end run on real VMs, in a lab of its own that is taken down again. Needs bin/director and bin/directorctl (make build).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export LAB_DIR=${LAB_DIR:-/run/director-lab-e2e} LAB_DATA=${LAB_DATA:-/var/lib/director-lab-e2e}
export KAAS_E2E_ROOT=$root KAAS_E2E_DIR=${KAAS_E2E_DIR:-/var/lib/director-e2e}
lab=$root/test/lab/lab

"$root/test/lab/need.sh" ansible openssh-client curl
KAAS_E2E_BUNDLE=$("$root/images/release/build.sh" --kubernetes 1.37 | tail -n 1)
KAAS_E2E_IMAGE=$("$root/images/node/build.sh" --release "$KAAS_E2E_BUNDLE" | tail -n 1)
export KAAS_E2E_BUNDLE KAAS_E2E_IMAGE

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
"$lab" exec -- "$root/bin/e2e.test" -test.v -test.timeout 60m "$@"
