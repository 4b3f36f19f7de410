#!/bin/bash
# preload.sh ROOT RELEASE puts the release's container images into containerd's
# store below ROOT, pulled and unpacked, so that a node does neither: on an
# emulated node that is most of the time of an installation.
#
# The images get the names that nodes know them by: kaas.internal/kaas/NAME:TAG.
# Which registry stands behind that name is said on each node (certs.d).
set -euo pipefail
root=$1
release=$2
registry=${NODE_REGISTRY:-kaas.internal}
tmp=$(mktemp -d)
containerd=
finish() {
    if [[ -n $containerd ]]; then
        kill "$containerd" 2>/dev/null || true
        wait "$containerd" 2>/dev/null || true
    fi
    rm -rf "$tmp"
}
trap finish EXIT

cat >"$tmp/config.toml" <<END
version = 3
root = "$root/var/lib/containerd"
state = "$tmp/state"
# No pods run here; and without mkfs.erofs the erofs plugins take all services down with them.
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.podsandbox.controller.v1.podsandbox", "io.containerd.grpc.v1.sandbox-controllers",
  "io.containerd.differ.v1.erofs", "io.containerd.mount-handler.v1.erofs", "io.containerd.snapshotter.v1.erofs",
]
[grpc]
  address = "$tmp/containerd.sock"
[ttrpc]
  address = "$tmp/containerd.ttrpc"
END
PATH=$release/bin:$PATH containerd --config "$tmp/config.toml" >"$tmp/log" 2>&1 &
containerd=$!
ctr() { "$release/bin/ctr" --address "$tmp/containerd.sock" --namespace k8s.io "$@"; }
for ((i = 0; i < 100; i++)); do
    ctr version >/dev/null 2>&1 && break
    kill -0 "$containerd" 2>/dev/null || { cat "$tmp/log" >&2; exit 1; }
    sleep 0.1
done

# The layout again, with the names that nodes use; the blobs are the release's own.
mkdir "$tmp/layout"
ln -s "$release/images/blobs" "$tmp/layout/blobs"
cp "$release/images/oci-layout" "$tmp/layout/"
/usr/bin/python3 - "$release/images/index.json" "$registry/kaas" >"$tmp/layout/index.json" <<'PY'
import json, sys
index = json.load(open(sys.argv[1]))
for m in index["manifests"]:
    ref = m["annotations"]["org.opencontainers.image.ref.name"]
    m["annotations"]["io.containerd.image.name"] = sys.argv[2] + "/" + ref
json.dump(index, sys.stdout)
PY
tar -C "$tmp/layout" --dereference --create --file - . | ctr images import --local --snapshotter overlayfs - >/dev/null
for image in $(ctr images ls -q); do
    ctr images label "$image" io.cri-containerd.image=managed >/dev/null
done
ctr images ls -q
