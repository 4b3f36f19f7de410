#!/usr/bin/env bash
# containerd with its runc shim and ctr. btrfs snapshots need C and are left out.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
module=github.com/containerd/containerd/v2
flags="-X $module/version.Version=$(module_version $module)"
go_build "$out/" "$flags" $module/cmd/containerd $module/cmd/containerd-shim-runc-v2 $module/cmd/ctr
