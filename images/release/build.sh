#!/usr/bin/env bash
# Builds a release bundle: see README.md beside this file.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director/release
minor=1.37
only=()

usage() {
    cat <<'TEXT'
usage: images/release/build.sh [--kubernetes MINOR] [--part NAME] [--print | --cached | --list | --help]

Builds the release bundle of a Kubernetes minor version, or takes it from the cache, and prints its directory as the
last line of stdout. Everything else goes to stderr. Safe to run twice at once; a build that was interrupted goes on
with the parts it has.

  --kubernetes MINOR  1.37 (default) or another one that has a file in releases/
  --part NAME         build only this part and print its directory (kubernetes, containerd, calico ...); may be repeated
  --print             the default: build what is missing and print the directory
  --cached            print the directory and build nothing; exit status 3 if it is not in the cache
  --list              print the versions of all releases
  --help              this text

The bundle is signed by images/sign.sh with the key in KAAS_SIGN_KEY, or else with a development key of this machine;
the public key lies beside the directory, with the suffix .pub.

The cache is ${XDG_CACHE_HOME:-$HOME/.cache}/director/release; removing it is always safe.
TEXT
}

log() { printf '%s %s\n' "$(date -u +%H:%M:%S)" "$*" >&2; }
fail() { log "release: $*"; exit 1; }

mode=build
while (($#)); do
    case $1 in
        --kubernetes) [[ $# -ge 2 ]] || fail "--kubernetes needs a minor version such as 1.37"; minor=${2#v}; shift ;;
        --kubernetes=*) minor=${1#*=}; minor=${minor#v} ;;
        --part) [[ $# -ge 2 ]] || fail "--part needs a name"; only+=("$2"); shift ;;
        --print) mode=build ;;
        --cached) mode=cached ;;
        --list) mode=list ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; fail "unknown argument '$1'" ;;
    esac
    shift
done

# required MODULE PATH: the version of PATH that MODULE's go.mod requires.
required() {
    awk -v path="$2" '$1 == "require" && $2 == path { print $3 } $1 == path && $2 ~ /^v/ { print $2 }' \
        "$here/modules/$1/go.mod" | head -n 1
}

# load MINOR: reads releases/MINOR.conf and the versions that follow from it.
load() {
    local conf=$here/releases/$1.conf
    [[ -f $conf ]] ||
        fail "no release for Kubernetes '$1'; there is: $(cd "$here/releases" && echo *.conf | sed 's/\.conf//g')"
    # shellcheck source-path=SCRIPTDIR source=releases/1.37.conf
    . "$conf"
    kubernetes=$(required "$KUBERNETES_MODULE" k8s.io/kubernetes)
    etcd=$(required "$ETCD_MODULE" go.etcd.io/etcd/server/v3)
    [[ $(required "$ETCDUTL_MODULE" go.etcd.io/etcd/etcdutl/v3) == "$etcd" ]] ||
        fail "modules/$ETCDUTL_MODULE/go.mod names another version than etcd's $etcd;" \
            "etcdutl has to be of the cluster's etcd"
    coredns=$(required "$COREDNS_MODULE" github.com/coredns/coredns)
    containerd=$(required containerd github.com/containerd/containerd/v2)
    cni_plugins=$(required cni-plugins github.com/containernetworking/plugins)
    cri_tools=$(required cri-tools sigs.k8s.io/cri-tools)
}

if [[ $mode == list ]]; then
    for conf in "$here"/releases/*.conf; do
        name=$(basename "$conf" .conf)
        load "$name"
        printf '%s: kubernetes %s, etcd %s, coredns %s, pause %s, ' \
            "$name" "$kubernetes" "$etcd" "$coredns" "$PAUSE_VERSION"
        printf 'containerd %s, cni-plugins %s, crictl %s, calico %s\n' \
            "$containerd" "$cni_plugins" "$cri_tools" "$CALICO_VERSION"
    done
    exit 0
fi
load "$minor"
export CALICO_VERSION PAUSE_VERSION

go_bin=$(command -v go || true)
[[ -n $go_bin ]] || go_bin=/usr/local/go/bin/go
[[ -x $go_bin ]] || fail "Go is not installed: see the README for the version"
PATH=$(dirname "$go_bin"):$PATH
go_version=$(GOTOOLCHAIN=local go env GOVERSION)

# Parts in the order of building: the longest first. NAME:MODULE:FILES, all below this directory; FILES belong
# to the key besides the recipe and go.mod and go.sum of the module.
parts=(
    "kubernetes:$KUBERNETES_MODULE:"
    "calico:calico:"
    "containerd:containerd:"
    "cni-plugins:cni-plugins:"
    "etcd:$ETCD_MODULE:"
    "etcdutl:$ETCDUTL_MODULE:"
    "coredns:$COREDNS_MODULE:"
    "pause::pause"
    "debian::"
    "cri-tools:cri-tools:"
    "toolbox::toolbox"
    "consul-sync::"
)

# digest FILE...: one hash over names and contents.
digest() { (cd "$root" && sha256sum -- "$@" | sha256sum | cut -c 1-12); }

# sources PACKAGE: the files of this tree and the versions of the modules that a program of ours is made from. A change
# of go.mod that does not reach it changes nothing.
sources() {
    local ours='{{range $.GoFiles}}{{$.ImportPath}}/{{.}}{{"\n"}}{{end}}' theirs='{{.Path}} {{.Version}}'
    (cd "$root" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go list -deps -f \
        "{{with .Module}}{{if .Main}}$ours{{else}}$theirs{{end}}{{end}}" "$1") | LC_ALL=C sort -u
}

# key_of NAME MODULE FILES: the content key of a part.
key_of() {
    local name=$1 module=$2 extra=$3 modules="" files=("images/release/recipes/lib.sh" "images/release/recipes/$1.sh")
    [[ -z $module ]] || files+=("images/release/modules/$module/go.mod" "images/release/modules/$module/go.sum")
    if [[ -n $extra ]]; then
        while IFS= read -r file; do files+=("$file"); done < <(
            cd "$root" && find "images/release/$extra" -type f ! -name '*_test.go' | LC_ALL=C sort)
    fi
    if [[ $name == consul-sync ]]; then
        # Assigned, and not piped, so that a failure ends the script.
        local list prefix
        prefix=$(awk '$1 == "module" { print $2 }' "$root/go.mod")
        list=$(sources ./cmd/consul-sync)
        while IFS= read -r file; do [[ $file != "$prefix"/* ]] || files+=("${file#"$prefix"/}"); done <<<"$list"
        modules=$(grep -v "^$prefix/" <<<"$list")
    fi
    {
        digest "${files[@]}"
        echo "$go_version"
        case $name in
            consul-sync) echo "$modules" ;;
            calico) echo "$CALICO_VERSION" ;;
            pause) echo "$PAUSE_VERSION" ;;
        esac
    } | sha256sum | cut -c 1-12
}

declare -A part_dir=()
keys=
for part in "${parts[@]}"; do
    IFS=: read -r name module extra <<<"$part"
    key=$(key_of "$name" "$module" "$extra")
    part_dir[$name]=$cache/parts/${module:-$name}-$key
    keys+="$name $key"$'\n'
done

assembler=()
while IFS= read -r file; do assembler+=("$file"); done < <(cd "$root" && find images/release/assemble \
    images/release/calico-node director/bundle -type f ! -name '*_test.go' ! -path '*/testdata/*' | LC_ALL=C sort)
release_key=$({
    printf '%s' "$keys"
    cat "$here/releases/$minor.conf"
    digest "${assembler[@]}"
} | sha256sum | cut -c 1-12)
release=$cache/k8s-${kubernetes#v}-$release_key

# The signature is no part of the key: a bundle that is in the cache without one is signed, and not built again.
signed() {
    "$root/images/sign.sh" "$release" || fail "signing $release failed"
    echo "$release"
}

if [[ ${#only[@]} -eq 0 && -f $release/release.yaml ]]; then
    signed
    exit 0
fi
if [[ $mode == cached ]]; then
    log "release: $(basename "$release") is not in the cache; images/release/build.sh --kubernetes $minor builds it"
    exit 3
fi

mkdir -p "$cache/parts"
exec 9>"$cache/lock-$minor"
if ! flock -n 9; then
    log "release: waiting for another build to end"
    flock 9
fi
# Only the holder of the lock makes these temporary directories, so those that are there were left by a build that was
# killed.
rm -rf "$cache/tmp-$minor".*
tmp=
tidy() {
    [[ -z $tmp ]] || rm -rf "$tmp"
    kill %1 2>/dev/null || true # the second lane, if it runs
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# build_part NAME MODULE: runs a recipe unless its result is there, or the other lane has begun with it.
build_part() {
    local name=$1 module=$2 dir=${part_dir[$1]} started=$SECONDS
    [[ ! -d $dir ]] && mkdir -m 0755 "$cache/tmp-$minor.$name" 2>/dev/null || return 0
    tmp=$cache/tmp-$minor.$name
    log "release: building $name (${module:-own sources})"
    MODULE_DIR=$here/modules/$module SOURCE_DIR=$here ROOT_DIR=$root PART_KEY=${dir##*-} \
        COMPILE_BUILDS=2 nice -n 5 "$here/../compile.sh" bash "$here/recipes/$name.sh" "$tmp" >&2 ||
        fail "building $name failed; the parts that are finished are kept, run again to go on"
    # The build of another minor version may have been faster with the same part.
    mv -T "$tmp" "$dir" 2>/dev/null || [[ -d $dir ]] || fail "cannot move $name into the cache"
    rm -rf "$tmp"
    tmp=
    log "release: $name took $((SECONDS - started)) s, $(du -sm "$dir" | cut -f 1) MB"
}

wanted() { [[ ${#only[@]} -eq 0 || " ${only[*]} " == *" $1 "* ]]; }

# lane: builds what is wanted and not there yet, one part after the other.
lane() {
    local part name module
    for part in "${parts[@]}"; do
        IFS=: read -r name module _ <<<"$part"
        if wanted "$name"; then build_part "$name" "$module"; fi
    done
}

# A linker takes one core. What it leaves goes to a second lane, which has little of the cores otherwise.
set -m # a group of its own, to end it with this script
(
    trap '[[ -z $tmp ]] || rm -rf "$tmp"' EXIT
    renice -n 10 "$BASHPID" >/dev/null
    lane
) &
second=$!
set +m
lane
wait "$second" || fail "a part failed; the parts that are finished are kept, run again to go on"
for part in "${parts[@]}"; do
    name=${part%%:*}
    wanted "$name" || continue
    [[ -d ${part_dir[$name]} ]] || fail "$name is not there; can $cache be written to?"
    [[ ${#only[@]} -eq 0 ]] || echo "${part_dir[$name]}"
done
[[ ${#only[@]} -eq 0 ]] || exit 0

if [[ ! -f $release/release.yaml ]]; then
    # A cache that somebody tidied by hand once lost its symbolic links, and every image on this layer its shell.
    [[ -x ${part_dir[debian]}/rootfs/bin/sh ]] || fail "${part_dir[debian]} is damaged; remove it and run again"
    started=$SECONDS
    log "release: assembling $(basename "$release")"
    tmp=$(mktemp -d "$cache/tmp-$minor.XXXXXX")
    chmod 0755 "$tmp"
    flags=(-kubernetes "$kubernetes" -calico-node "$here/calico-node")
    for component in "etcd=$etcd" "coredns=$coredns" "pause=$PAUSE_VERSION" "containerd=$containerd" "runc=debian" \
        "cniPlugins=$cni_plugins" "crictl=$cri_tools" "calico=$CALICO_VERSION"; do
        flags+=(-component "$component")
    done
    for name in "${!part_dir[@]}"; do flags+=(-part "$name=${part_dir[$name]}"); done
    (cd "$root" && CGO_ENABLED=0 GOFLAGS="-trimpath -mod=readonly -buildvcs=false" nice -n 5 \
        go run ./images/release/assemble build -dir "$tmp" "${flags[@]}") >&2 ||
        fail "assembling failed; the parts are kept"
    rm -rf "$release"
    mv -T "$tmp" "$release"
    tmp=
    log "release: assembled in $((SECONDS - started)) s, $(du -sm "$release" | cut -f 1) MB"
fi
signed
