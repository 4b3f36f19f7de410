#!/usr/bin/env bash
# crictl, to look at the containers of a node.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
module=sigs.k8s.io/cri-tools
go_build "$out/crictl" "-X $module/pkg/version.Version=$(module_version $module)" $module/cmd/crictl
