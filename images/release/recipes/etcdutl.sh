#!/usr/bin/env bash
# etcdutl: looks at snapshots and restores them. etcdctl can do neither since etcd 3.6.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
go_build "$out/etcdutl" "" go.etcd.io/etcd/etcdutl/v3
