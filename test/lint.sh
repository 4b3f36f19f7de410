#!/usr/bin/env bash
# All linters. golangci-lint is built from its pinned module once and kept in the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director
source test/go.sh

test/lab/need.sh ansible-lint yamllint shellcheck ansible

golangci() {
    local key bin
    key=$( (cat test/tools/go.mod test/tools/go.sum && go version) | sha256sum | cut -c1-12)
    bin=$cache/tools/golangci-lint-$key
    if [[ ! -x $bin ]]; then
        echo "Building golangci-lint (once) ..." >&2
        mkdir -p "$cache/tools"
        GOFLAGS='' images/compile.sh go build -C test/tools -trimpath -ldflags '-s -w' -o "$bin.$$" \
            github.com/golangci/golangci-lint/v2/cmd/golangci-lint
        mv "$bin.$$" "$bin"
    fi
    GOMEMLIMIT=6GiB "$bin" run --timeout 20m ./...
}

step() { printf -- '--- %s\n' "$1"; shift; "$@"; }

mapfile -t scripts < <(git ls-files | while read -r f; do
    [[ -f $f ]] && head -n 1 "$f" | grep -qE '^#!.*\b(ba)?sh' && echo "$f"
done)

step shellcheck shellcheck -x "${scripts[@]}"
step yamllint yamllint -c playbooks/.yamllint .golangci.yml docs playbooks inventory-templates/variables.yml \
    director/ansible/causes.yml
step 'ansible-lint' bash -c 'cd playbooks && ansible-lint --offline -q'
step 'import rules and Go' golangci
step 'go mod tidy' go mod tidy -diff
