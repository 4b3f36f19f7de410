#!/usr/bin/env bash
# Builds the S3 server of the tests, or takes it from the cache, and prints its path as the last line of its output.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/tools
key=$(sha256sum "$here/go.mod" "$here/go.sum" "$here/build.sh" | cut -d ' ' -f 1 | sha256sum | cut -c 1-12)
target=$cache/versitygw-$key
if [[ ! -x $target ]]; then
    mkdir -p "$cache"
    export CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false -mod=readonly"
    go -C "$here" build -ldflags "-s -w" -o "$target.$$" github.com/versity/versitygw/cmd/versitygw >&2
    mv "$target.$$" "$target"
fi
echo "$target"
