#!/bin/bash
# upgrade.sh ROOT.ext4 OUT VERSION BUILT SCHEMA makes OUT/director-upgrade.tar, with which an appliance replaces its
# root, of the file system of a root partition. BUILT is the time of its source, SCHEMA the version of its database.
# upgrade.sh OUT signs it again, if the key is another one.
#
# The archive has appliance.yaml, its signature, and the root; director/rootdisk reads it.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

if (($# == 5)); then
    root=$1 out=$2 version=$3 built=$4 schema=$5
    zstd -q -f -10 --single-thread "$root" -o "$out/root.ext4.zst"
    cat >"$out/appliance.yaml" <<END
apiVersion: kaas/v1
kind: Appliance
metadata:
  name: $version
spec:
  version: $version
  built: $built
  schema: "$schema"
  arch: amd64
  root:
    sha256: $(sha256sum <"$root" | cut -d' ' -f1)
    size: $(stat -c %s "$root")
END
elif (($# == 1)); then
    out=$1
else
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 64
fi

"$here/../sign.sh" "$out/appliance.yaml"
tar=$out/director-upgrade.tar signature=$out/appliance.yaml.minisig
# An upgrade without a signature has no use.
[[ -f $signature && (! -f $tar || $signature -nt $tar) ]] || exit 0
built=$(sed -n 's/^  built: //p' "$out/appliance.yaml")
tar --format=ustar --mtime="@$built" --owner=0 --group=0 --numeric-owner --mode=0644 -C "$out" -cf "$tar.new" \
    appliance.yaml appliance.yaml.minisig root.ext4.zst
mv "$tar.new" "$tar"
