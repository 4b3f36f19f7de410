# shellcheck shell=bash
# Helpers of the recipes. A recipe is called as `recipe.sh OUT` with MODULE_DIR set (where it has a module) and fills OUT.
set -euo pipefail

# The environment of every Go build: the pins in go.sum decide, nothing of the caller's settings does.
export CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOAMD64=v1 GOWORK=off GOTOOLCHAIN=local
export GOFLAGS="-trimpath -buildvcs=false -mod=readonly"

log() { printf '%s %s\n' "$(date -u +%H:%M:%S)" "$*" >&2; }

# module_version PATH: the version of a required module, as in go.mod.
module_version() { go -C "$MODULE_DIR" list -m -f '{{.Version}}' "$1"; }

# module_time PATH: when that version was made; used as the build date so that a build can be repeated.
module_time() { go -C "$MODULE_DIR" list -m -f '{{.Time.UTC.Format "2006-01-02T15:04:05Z"}}' "$1"; }

# module_dir PATH: where the sources of a required module are.
module_dir() { go -C "$MODULE_DIR" mod download "$1" && go -C "$MODULE_DIR" list -m -f '{{.Dir}}' "$1"; }

# go_build TARGET LDFLAGS PACKAGE...: builds stripped static programs. TARGET ends in a slash for a directory.
go_build() {
    local target=$1 ldflags=$2
    shift 2
    go -C "$MODULE_DIR" build -ldflags "-s -w $ldflags" -o "$target" "$@"
}
