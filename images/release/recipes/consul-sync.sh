#!/usr/bin/env bash
# consul-sync: our own controller, which syncs Services with Consul.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export MODULE_DIR=$ROOT_DIR
# As the director is compiled (Makefile), which has most of these packages.
export GOFLAGS="$GOFLAGS -tags=netgo,osusergo"
go_build "$1/consul-sync" "-X main.version=$PART_KEY" ./cmd/consul-sync
