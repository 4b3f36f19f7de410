#!/usr/bin/env bash
# The reference CNI plugins: all that the module names as its tools.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
module=github.com/containernetworking/plugins
go_build "$out/" "-X $module/pkg/utils/buildversion.BuildVersion=$(module_version $module)" tool
