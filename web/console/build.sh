#!/usr/bin/env bash
# build.sh [DIR]: puts the console that the director serves at / into DIR (director/console/site). What was built before
# from the same source comes from the cache. Texts are compressed once, here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
site=${1:-$root/director/console/site}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/console
cd "$root"

sum() { sha256sum | cut -c1-16; }

sources() {
    find web/console \( -path web/console/node_modules -o -path web/console/dist -o -path web/console/e2e \) -prune -o \
        -type f ! -name schema.d.ts ! -name '*.test.ts*' ! -name playwright.config.ts -print
    printf '%s\n' docs/reference/openapi.yaml
}
key=$(sources | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum | sum)
[[ $(cat "$site/key" 2>/dev/null) != "$key" ]] || exit 0

made=$cache/site-$key
mkdir -p "$cache"
if [[ ! -d $made ]]; then
    packages=$(web/packages.sh web/console)
    stage=$(mktemp -d "$cache/stage.XXXXXX")
    trap 'rm -rf "$stage"' EXIT
    echo "Making the console ..." >&2
    cp -R web/console/{src,index.html,package.json,tsconfig.json,vite.config.ts} "$stage"
    ln -s "$packages/node_modules" "$stage/node_modules"
    (
        cd "$stage" &&
            node node_modules/openapi-typescript/bin/cli.js "$root/docs/reference/openapi.yaml" \
                -o src/api/schema.d.ts &&
            node node_modules/typescript/bin/tsc --noEmit &&
            node node_modules/vite/bin/vite.js build --outDir "$stage/site"
    ) >"$stage/log" 2>&1 || {
        cat "$stage/log" >&2
        exit 1
    }
    node web/console/budgets.js "$stage/site"
    find "$stage/site" -type f -regextype egrep -regex '.*\.(html|js|css|json|svg|txt)' -exec gzip -9n {} +
    echo "$key" >"$stage/site/key"
    mv -T "$stage/site" "$made" 2>/dev/null || [[ -d $made ]]
    find "$cache" -maxdepth 1 -name 'site-*' -mtime +30 -exec rm -rf {} +
fi

find "$site" -mindepth 1 -maxdepth 1 ! -name README -exec rm -rf {} +
cp -R "$made/." "$site"
