#!/usr/bin/env bash
# etcd: the server and etcdctl.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
go_build "$out/etcd" "" go.etcd.io/etcd/server/v3
go_build "$out/etcdctl" "" go.etcd.io/etcd/etcdctl/v3
