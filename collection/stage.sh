#!/usr/bin/env bash
# stage.sh DIR: puts the collection into an empty directory, complete with the client that it calls the director with.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rm -rf "$1"
mkdir -p "$1"
cp -r "$here/galaxy.yml" "$here/README.md" "$here/meta" "$here/plugins" "$1/"
cp "$here/../client/python/director_client.py" "$1/plugins/module_utils/"
