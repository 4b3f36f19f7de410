#!/usr/bin/env bash
# build.sh [DIR]: puts the manual that the director serves at /docs into DIR (director/manual/site). What was built
# before from the same pages comes from the cache. Texts are compressed once, here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
site=${1:-$root/director/manual/site}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/manual
cd "$root"

sum() { sha256sum | cut -c1-16; }

sources() {
    find docs -type f
    find web/manual -path web/manual/node_modules -prune -o -type f -print
    printf '%s\n' CHANGELOG.md CONTRIBUTING.md images/*/README.md test/lab/README.md playbooks/roles/*/README.md
}
key=$(sources | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum | sum)
[[ $(cat "$site/key" 2>/dev/null) != "$key" ]] || exit 0

made=$cache/site-$key
mkdir -p "$cache"
if [[ ! -d $made ]]; then
    packages=$(web/packages.sh web/manual)
    stage=$(mktemp -d "$cache/stage.XXXXXX")
    trap 'rm -rf "$stage"' EXIT
    echo "Making the manual ..." >&2
    cp -R web/manual/.vitepress web/manual/package.json "$stage"
    ln -s "$packages/node_modules" "$stage/node_modules"
    node web/manual/stage.js "$root" "$stage"
    cp web/manual/public/* "$stage/pages/public"
    (cd "$stage" && node node_modules/vitepress/bin/vitepress.js build --outDir "$stage/site") >"$stage/log" 2>&1 || {
        cat "$stage/log" >&2
        exit 1
    }
    find "$stage/site" -type f -regextype egrep -regex '.*\.(html|js|css|json|svg|yaml|in|sh|txt)' -exec gzip -9n {} +
    echo "$key" >"$stage/site/key"
    mv -T "$stage/site" "$made" 2>/dev/null || [[ -d $made ]]
    find "$cache" -maxdepth 1 -name 'site-*' -mtime +30 -exec rm -rf {} +
fi

find "$site" -mindepth 1 -maxdepth 1 ! -name README -exec rm -rf {} +
cp -R "$made/." "$site"
