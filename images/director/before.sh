#!/bin/bash
# before.sh [REVISION] builds the appliance of an earlier commit, or takes it from the cache, and prints its directory
# as the last line of its output. Without a revision, it is the commit before the one that brought the newest version of
# the database: an upgrade from there has a migration to run.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
source=$(readlink -f "$here/../..")
migrations=director/store/migrations/sqlite
say() { echo "before: $*" >&2; }
(($# <= 1)) || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 64; }

revision=${1:-}
if [[ -z $revision ]]; then
    newest=$(cd "$source" && find "$migrations" -name '*.sql' | LC_ALL=C sort | tail -n 1)
    revision=$(git -C "$source" log -1 --diff-filter=A --format=%H -- "$newest")^
fi
commit=$(git -C "$source" rev-parse --quiet --verify "$revision^{commit}") || {
    say "$revision is no commit here: this needs a clone with its history"
    exit 66
}
say "building the appliance of $(git -C "$source" log -1 --format='%h, %s' "$commit")"
work=$(mktemp -d /var/tmp/director-appliance-before.XXXXXX)
trap 'chmod -R u+w "$work" && rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
git clone --quiet --shared --no-checkout "$source" "$work/source"
git -C "$work/source" checkout --quiet --detach "$commit"
"$work/source/images/director/build.sh" | tail -n 1
