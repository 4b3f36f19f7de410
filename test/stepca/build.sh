#!/usr/bin/env bash
# Builds the step-ca of the tests, or takes it from the cache, and prints its path as the last line of its output. The first build takes minutes; with
# --cached, there is none.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/tools
key=$(sha256sum "$here/go.mod" "$here/go.sum" "$here/build.sh" | cut -d ' ' -f 1 | sha256sum | cut -c 1-12)
target=$cache/step-ca-$key
if [[ ! -x $target && ${1:-} == --cached ]]; then
    echo "step-ca is not built yet: test/stepca/build.sh" >&2
    exit 1
fi
if [[ ! -x $target ]]; then
    mkdir -p "$cache"
    export CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false -mod=readonly"
    go -C "$here" build -ldflags "-s -w" -o "$target.$$" github.com/smallstep/certificates/cmd/step-ca >&2
    mv "$target.$$" "$target"
fi
echo "$target"
