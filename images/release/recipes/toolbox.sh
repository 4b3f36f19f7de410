#!/usr/bin/env bash
# toolbox: our own HTTP server, HTTP client and resolver, for the checks of a cluster.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export MODULE_DIR=$ROOT_DIR
go_build "$1/toolbox" "" ./images/release/toolbox
