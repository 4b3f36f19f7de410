#!/usr/bin/env bash
# packages.sh DIR: prints the directory that holds the npm packages of DIR (web/console or web/manual), and fetches them
# once for each package-lock.json.
set -euo pipefail
cd "$1"
what=$(basename "$PWD")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/$what
for tool in node npm; do
    command -v $tool >/dev/null || {
        echo "packages.sh: the $what needs Node 20 and npm: apt-get install nodejs npm" >&2
        echo "packages.sh: without it, 'go build ./cmd/director' builds a director that has no $what" >&2
        exit 1
    }
done
packages=$cache/npm-$( (cat package-lock.json && node --version) | sha256sum | cut -c1-16)
if [[ ! -d $packages ]]; then
    echo "Fetching what makes the $what (once) ..." >&2
    mkdir -p "$cache"
    stage=$(mktemp -d "$cache/npm-stage.XXXXXX")
    trap 'rm -rf "$stage"' EXIT
    cp package.json package-lock.json .npmrc "$stage"
    npm ci --prefix "$stage" --ignore-scripts --loglevel=error >&2
    mv -T "$stage" "$packages" 2>/dev/null || [[ -d $packages ]]
fi
echo "$packages"
