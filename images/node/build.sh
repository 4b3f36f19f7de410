#!/bin/bash
# build.sh [--release DIR] [--print] [--base] makes the image of a cluster's nodes, or
# takes it from the cache, and prints the path of the qcow2 as the last line of its output.
#
#   --release DIR  a release directory (images/release/build.sh prints it): its
#                  programs go into the image. Without it the image has no Kubernetes.
#   --base         make only Debian and its packages, which need no release, and print
#                  the path of their archive.
#   --print        build nothing: print the path, fail when it is not in the cache.
#
# The image is signed by images/sign.sh; node.qcow2.pub beside it is the public key.
set -euo pipefail
umask 022
here=$(dirname "$(readlink -f "$0")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/node

say() { echo "node image: $*" >&2; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$here/build.sh" >&2; exit 64; }

release='' print='' base_only=''
arguments=("$@")
while (($#)); do
    case $1 in
    --release)
        release=$(readlink -f "${2:-}") || usage
        shift
        ;;
    --print) print=1 ;;
    --base) base_only=1 ;;
    *) usage ;;
    esac
    shift
done
if [[ -n $release && ! -f $release/release.yaml ]]; then
    say "$release is no release directory: it has no release.yaml"
    exit 66
fi

# hash_of PATH... is the hash of the names and the content below them.
hash_of() {
    (cd "$here" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-12
}
base_key=$(hash_of base ../common/debian.sh packages.txt)
base=$cache/base-$base_key.tar
name=debian12
kubernetes=
if [[ -n $release ]]; then
    kubernetes=$(sed -n 's/^ *kubernetes: *v\{0,1\}\([0-9.]*\) *$/\1/p' "$release/release.yaml" | head -n1)
    name+=-k8s-$kubernetes
fi
key_of_all() {
    {
        hash_of base ../common packages.txt files finish.sh preload.sh disk.sh build.sh
        [[ -z $release ]] || sha256sum <"$release/release.yaml"
    } | sha256sum | cut -c1-12
}
key=$(key_of_all)
target=$cache/$name-$key

# What was asked for. An image that is in the cache without a signature is signed, and not built again.
wanted=$target/node.qcow2
[[ -z $base_only ]] || wanted=$base
deliver() {
    [[ -n $base_only ]] || "$here/../sign.sh" "$wanted"
    echo "$wanted"
}
deliver_if_there() {
    if [[ -f $wanted ]]; then
        deliver
        exit 0
    fi
}

deliver_if_there
[[ -z $print ]] || { say "$wanted is not built"; exit 3; }
((EUID == 0)) || { say "run as root"; exit 77; }

# The build has processes and mounts of its own: they end with it, however it ends.
if (($$ != 1)); then
    "$here/../../test/lab/need.sh" mmdebstrap debian-archive-keyring grub-pc-bin grub-common e2fsprogs fdisk \
        qemu-utils python3 python3-yaml
    mkdir -p "$cache"
    exec unshare --mount --pid --fork --mount-proc --kill-child=KILL --propagation private -- \
        nice -n 5 "$here/build.sh" "${arguments[@]}"
fi

exec 9>"$cache/.lock"
flock 9
deliver_if_there # built while we waited
rm -rf --one-file-system "$cache"/tmp.* # of builds that were killed: we hold the lock
tmp=$(mktemp -d "$cache/tmp.XXXXXX")
trap 'rm -rf --one-file-system "$tmp"' EXIT
export TMPDIR=$tmp
SECONDS=0

if [[ ! -f $base ]]; then
    say "installing Debian and its packages (about a minute)"
    "$here/../common/debian.sh" "$here" "$tmp/base.tar" >&2
    mv "$tmp/base.tar" "$base"
    say "packages done after $SECONDS s"
fi
[[ -z $base_only ]] || { deliver; exit 0; }

[[ $(hash_of base ../common/debian.sh packages.txt) == "$base_key" && $(key_of_all) == "$key" ]] ||
    { say "the sources changed meanwhile; run it again"; exit 75; }
say "adding configuration and programs"
root=$tmp/root
mkdir "$root"
tar -xf "$base" -C "$root" --numeric-owner
cp -r --no-preserve=mode,ownership "$here/files/." "$root/"
mkdir -p "$root/opt/cni/bin" "$root/etc/cni/net.d" "$root/etc/containerd/certs.d" "$root/etc/kubernetes/manifests"
if [[ -n $release ]]; then
    /usr/bin/python3 - "$release" >"$tmp/sums" <<'PY'
import sys, yaml
spec = yaml.safe_load(open(sys.argv[1] + "/release.yaml"))["spec"]
for f in spec["files"]:
    if f["path"].startswith(("bin/", "cni/")):
        print(f["sha256"] + "  " + f["path"])
PY
    (cd "$release" && sha256sum --quiet --check "$tmp/sums") >&2 ||
        { say "the release in $release is damaged"; exit 65; }
    install -m 0755 "$release"/bin/* "$root/usr/local/bin/"
    install -m 0755 "$release"/cni/* "$root/opt/cni/bin/"
fi
cp "$here/finish.sh" "$root/finish.sh"
chroot "$root" /bin/bash /finish.sh >&2
rm "$root/finish.sh"
if [[ -n $release ]]; then
    say "loading the container images"
    "$here/preload.sh" "$root" "$release" >&2
fi

runc=$(chroot "$root" runc --version | sed -n 's/^runc version //p')
/usr/bin/python3 - "$release" "$runc" "$key" >"$tmp/kaas-release.json" <<'PY'
import json, sys, yaml
release, runc, key = sys.argv[1:]
spec = yaml.safe_load(open(release + "/release.yaml"))["spec"] if release else {}
components = spec.get("components", {})
print(json.dumps({
    "image": "debian12",
    "kubernetes": spec.get("kubernetes", ""),
    "containerd": components.get("containerd", ""),
    "runc": runc,
    "cni_plugins": components.get("cniPlugins", ""),
    "arch": "amd64",
    "built_from": key,
}, indent=2))
PY
install -m 0644 "$tmp/kaas-release.json" "$root/etc/kaas-release"

say "making the disk"
mkdir "$tmp/out"
"$here/disk.sh" "$root" "$tmp/out/node.qcow2" >&2
install -m 0644 "$tmp/kaas-release.json" "$tmp/out/kaas-release.json"
# Python's hash takes a quarter of the time of coreutils'.
(cd "$tmp/out" && /usr/bin/python3 - node.qcow2 >node.qcow2.sha256) <<'PY'
import hashlib, sys
with open(sys.argv[1], "rb") as f:
    print(hashlib.file_digest(f, "sha256").hexdigest() + "  " + sys.argv[1])
PY
chmod 755 "$tmp/out"
rm -rf "$target"
mv "$tmp/out" "$target"
say "done after $SECONDS s: $(du -h "$target/node.qcow2" | cut -f1)"
deliver
