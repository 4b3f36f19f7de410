#!/bin/bash
# build.sh [--print|--fresh] makes the director's appliance, or takes it from the cache, and prints its
# directory as the last line of its output: director.qcow2, director.ova, director-upgrade.tar, SHA-256 sums with a
# signature, sbom.spdx.json, licenses.txt and tree.txt (every file of the root directory with its mode, owner, time and
# checksum).
#
#   --print  build nothing: print the directory, fail when it is not in the cache
#   --fresh  take the packages from Debian's mirror again, with the security updates of today
#
# The programs are built here, without the paths of this machine: the director's own, and kubectl and Helm of tools/.
set -euo pipefail
umask 022
here=$(dirname "$(readlink -f "$0")")
source=$(readlink -f "$here/../..")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/appliance
mkdir -p "$cache"

say() { echo "appliance: $*" >&2; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$here/build.sh" >&2; exit 64; }

print='' fresh=''
arguments=("$@")
while (($#)); do
    case $1 in
    --print) print=1 ;;
    --fresh) fresh=1 ;;
    *) usage ;;
    esac
    shift
done

# The time of the last change of the given files: no file of the image is newer.
changed() { git -C "$source" log -1 --format=%ct -- "$@" 2>/dev/null || :; }
hash_of() {
    (cd "$here" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-12
}
base_inputs=(base ../common/debian.sh packages.txt)
base_epoch=$(changed "${base_inputs[@]/#/$here/}")
base_epoch=${base_epoch:-1750000000}
base_key=$(hash_of "${base_inputs[@]}")-$base_epoch
SOURCE_DATE_EPOCH=$(changed .)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$base_epoch}
export SOURCE_DATE_EPOCH

# The programs come first: their content is part of the key. Go keeps what it compiled.
programs() {
    local version commit kubernetes
    go=$(command -v go || echo /usr/local/go/bin/go)
    version=$(git -C "$source" describe --tags --always --dirty 2>/dev/null || echo dev)
    commit=$(git -C "$source" rev-parse --short HEAD 2>/dev/null || echo unknown)
    (cd "$source" && web/manual/build.sh && web/console/build.sh) >&2
    for program in director directorctl; do
        (cd "$source" && GOFLAGS=-tags=libvirt_dlopen,nomsgpack,netgo,osusergo images/compile.sh \
            "$go" build -trimpath -buildvcs=false -ldflags \
            "-s -w -buildid= -X main.version=$version -X main.commit=$commit" -o "$1/$program" "./cmd/$program")
    done
    kubernetes=$(tool k8s.io/component-base)
    (cd "$here/tools" && CGO_ENABLED=0 ../../compile.sh "$go" build -trimpath -buildvcs=false -ldflags \
        "-s -w -buildid= -X k8s.io/component-base/version.gitVersion=$kubernetes \
        -X k8s.io/component-base/version.gitCommit= \
        -X helm.sh/helm/v4/internal/version.version=$(tool helm.sh/helm/v4)" \
        -o "$1/" ./kubectl helm.sh/helm/v4/cmd/helm)
    for program in director directorctl kubectl helm; do
        "$go" version -m "$1/$program"
    done | sed "s,$1/,," >"$1/modules"
}
# tool prints the version of a module of tools/: Kubernetes' libraries are v0 where it is v1.
tool() { (cd "$here/tools" && "$go" list -m -f '{{.Version}}' "$1") | sed 's/^v0/v1/'; }
work=${KAAS_APPLIANCE_WORK:-}
if [[ -z $work ]]; then
    work=$(mktemp -d "$cache/programs.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    programs "$work"
fi
version=$("$work/director" -version | cut -d' ' -f2)
key=$({
    hash_of base ../common packages.txt files finish.sh disk.sh loader.cfg build.sh upgrade.sh ova.py sbom.py
    sha256sum <"$work/director"
    sha256sum <"$work/directorctl"
    sha256sum <"$work/kubectl"
    sha256sum <"$work/helm"
    echo "$SOURCE_DATE_EPOCH $base_key"
} | sha256sum | cut -c1-12)
target=$cache/$key

finished() {
    "$here/../sign.sh" "$target/director.qcow2" --appliance "$version"
    "$here/../sign.sh" "$target/director.ova" --appliance "$version"
    "$here/upgrade.sh" "$target"
    echo "$target"
}
if [[ -z $fresh && -f $target/director.ova ]]; then
    finished
    exit 0
fi
[[ -z $print ]] || { say "$target is not built"; exit 3; }
((EUID == 0)) || { say "run as root"; exit 77; }

# The build has processes and mounts of its own: they end with it, however it ends.
if (($$ != 1)); then
    "$here/../../test/lab/need.sh" mmdebstrap debian-archive-keyring grub-pc-bin grub-efi-amd64-bin grub-common mtools \
        dosfstools e2fsprogs fdisk qemu-utils python3 zstd
    rc=0
    KAAS_APPLIANCE_WORK=$work unshare --mount --pid --fork --mount-proc --kill-child=KILL --propagation private -- \
        nice -n 5 "$here/build.sh" "${arguments[@]}" || rc=$?
    exit "$rc"
fi

exec 9>"$cache/.lock"
flock 9
if [[ -z $fresh && -f $target/director.ova ]]; then # built while we waited
    finished
    exit 0
fi
rm -rf --one-file-system "$cache"/tmp.* # of builds that were killed: we hold the lock
tmp=$(mktemp -d "$cache/tmp.XXXXXX")
trap 'rm -rf --one-file-system "$tmp"' EXIT
export TMPDIR=$tmp
SECONDS=0

base=$cache/base-$base_key.tar
[[ -z $fresh ]] || rm -f "$base"
if [[ ! -f $base ]]; then
    say "installing Debian and its packages (about three minutes)"
    SOURCE_DATE_EPOCH=$base_epoch "$here/../common/debian.sh" "$here" "$tmp/base.tar" >&2
    mv "$tmp/base.tar" "$base"
    say "packages done after $SECONDS s"
fi
say "adding configuration and programs"
root=$tmp/root
mkdir "$root"
tar -xf "$base" -C "$root" --numeric-owner
cp -r --no-preserve=mode,ownership "$here/files/." "$root/"
install -m 0755 "$work"/{director,directorctl,kubectl,helm} "$root/usr/local/bin/"
mkdir "$tmp/out"
PATH=$PATH:/usr/local/go/bin "$here/sbom.py" "$root" "$version" "$work/modules" "$tmp/out"
cp "$here/finish.sh" "$root/finish.sh"
chroot "$root" /bin/bash /finish.sh >&2
rm "$root/finish.sh"
schema=$("$work/director" setup schema)
# The list names each package that is in the root; a package that is not in it would be one that nobody patches.
/usr/bin/python3 - "$root/var/lib/dpkg/status" "$tmp/out/sbom.spdx.json" <<'EOF'
import json, re, sys
with open(sys.argv[1], encoding="utf-8") as f:
    there = {re.search(r"^Package: (.*)", p, re.M)[1] for p in f.read().strip().split("\n\n")
             if re.search(r"^Status: install ok installed", p, re.M)}
with open(sys.argv[2], encoding="utf-8") as f:
    listed = {p["name"] for p in json.load(f)["packages"] if p["SPDXID"].startswith("SPDXRef-deb-")}
if there != listed:
    sys.exit(f"build.sh: the SBOM and the packages differ: {sorted(there ^ listed)}")
EOF
printf '{"version": "%s", "built": %s, "schema": "%s"}\n' "$version" "$SOURCE_DATE_EPOCH" "$schema" \
    >"$root/usr/lib/director/appliance" # director setup works where this file is
install -D -m 0644 "$tmp/out/licenses.txt" "$root/usr/share/doc/director/licenses.txt"
install -D -m 0644 "$tmp/out/sbom.spdx.json" "$root/usr/share/doc/director/sbom.spdx.json"

say "making the disks"
"$here/disk.sh" "$root" "$tmp/out" >&2
/usr/bin/python3 "$here/tree.py" "$root" >"$tmp/out/tree.txt"
capacity=$(qemu-img info --output json "$tmp/out/director.qcow2" |
    sed -n 's/^ *"virtual-size": \([0-9]*\),.*/\1/p' | head -n 1)
"$work/director" setup properties |
    "$here/ova.py" "$version" "$tmp/out/director.vmdk" "$capacity" "$tmp/out/director.ova"
rm "$tmp/out/director.vmdk"
"$here/upgrade.sh" "$tmp/out/root.ext4" "$tmp/out" "$version" "$SOURCE_DATE_EPOCH" "$schema"
rm "$tmp/out/root.ext4"
(cd "$tmp/out" && sha256sum director.qcow2 >director.qcow2.sha256 && sha256sum director.ova >director.ova.sha256)
most=$((1200 << 20)) # of a file that an administrator uploads
for image in "$tmp/out/director.qcow2" "$tmp/out/director.ova"; do
    size=$(stat -c %s "$image")
    ((size <= most)) || { say "$image has $((size >> 20)) MiB, more than $((most >> 20))"; exit 1; }
done
chmod 755 "$tmp/out"
rm -rf "$target"
mv "$tmp/out" "$target"
say "done after $SECONDS s: $(du -hc "$target"/director.qcow2 "$target"/director.ova | xargs)"
finished
