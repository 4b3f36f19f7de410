#!/usr/bin/env bash
# Builds the Consul of the tests, or takes it from the cache, and prints its path as the last line of its output. The first build takes about ten
# minutes; with --cached, there is none. Nothing that is shipped contains Consul: its licence is BUSL.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/tools
key=$(sha256sum "$here/go.mod" "$here/go.sum" "$here/build.sh" | cut -d ' ' -f 1 | sha256sum | cut -c 1-12)
target=$cache/consul-$key
if [[ ! -x $target && ${1:-} == --cached ]]; then
    echo "Consul is not built yet: test/consul/build.sh" >&2
    exit 1
fi
if [[ ! -x $target ]]; then
    mkdir -p "$cache"
    export CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false -mod=readonly"
    go -C "$here" build -ldflags "-s -w" -o "$target.$$" github.com/hashicorp/consul >&2
    mv "$target.$$" "$target"
fi
echo "$target"
