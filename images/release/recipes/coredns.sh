#!/usr/bin/env bash
# CoreDNS with its default plugins.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
go_build "$out/coredns" "" github.com/coredns/coredns
