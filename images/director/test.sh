#!/bin/bash
# test.sh [DIR] boots the appliance of images/director/build.sh in a lab of its own, sets it up in each way that there
# is, looks at what it must be, restarts it, replaces its root disk, and upgrades it in place. Prints how long it took.
#
# KAAS_APPLIANCE_ONLY="nocloud ovf form upgrade" runs some of it. KAAS_APPLIANCE_KEEP=1 keeps the files of the run.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
lab=$here/../../test/lab/lab
dir=$(readlink -f "${1:-$("$here/build.sh" | tail -n 1)}")

"$here/../../test/lab/need.sh" genisoimage openssh-client qemu-utils ovmf xfsprogs python3 dnsmasq-base e2fsprogs zstd
APPLIANCE_TEST_DIR=$(mktemp -d /var/tmp/director-appliance-test.XXXXXX)
export APPLIANCE_TEST_DIR LAB_DIR=$APPLIANCE_TEST_DIR/lab LAB_DATA=$APPLIANCE_TEST_DIR/data LAB_GUESTS=vm
trap '"$lab" down >/dev/null 2>&1 || :; [[ -n ${KAAS_APPLIANCE_KEEP:-} ]] || rm -rf "$APPLIANCE_TEST_DIR"' EXIT
trap 'exit 130' INT TERM
"$lab" up
"$lab" exec -- "$here/test.py" "$dir"
