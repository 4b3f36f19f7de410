#!/usr/bin/env bash
# test.sh [TEST...]: the console's unit tests, and its pages in Debian's Chromium against rehearsing directors. bin must
# be built: make build.
# CONSOLE_PICTURES names a directory that gets a picture of every page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
for need in ../../bin/director ../../bin/directorctl ../../bin/pretend-ansible; do
    [[ -x $need ]] || {
        echo "test.sh: $need is not built: make build" >&2
        exit 1
    }
done
(cd ../.. && go build -o bin/test-provider ./test/provider)
packages=$(../packages.sh .)
[[ -d node_modules && ! -L node_modules ]] || ln -sfnT "$packages/node_modules" node_modules
types=src/api/schema.d.ts
if [[ ! $types -nt ../../docs/reference/openapi.yaml ]]; then # whole or not at all: two runs may be under way
    made=$(mktemp -d)
    node node_modules/openapi-typescript/bin/cli.js ../../docs/reference/openapi.yaml -o "$made/types" >/dev/null
    mv "$made/types" $types
    rmdir "$made"
fi
node node_modules/typescript/bin/tsc --noEmit
node node_modules/prettier/bin/prettier.cjs --check --log-level warn 'src/**/*.{ts,tsx,css}' 'e2e/**/*.ts' '*.{ts,js}'
(($# > 0)) || node node_modules/vitest/vitest.mjs run
exec node node_modules/@playwright/test/cli.js test "$@"
