#!/usr/bin/env bash
# Calico: the node agent, the CNI plugin, the controllers, and the module's own manifest. The module has no release tag; the
# release that it belongs to is the one that its manifest names.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
module=github.com/projectcalico/calico
dir=$(module_dir $module)
install -m 0644 "$dir/manifests/calico-vxlan.yaml" "$out/calico-vxlan.yaml"
version=$(sed -n 's#.*image: docker.io/calico/node:\(v[0-9.]*\)$#\1#p' "$out/calico-vxlan.yaml" | sort -u)
[[ $version =~ ^v3\.[0-9]+\.[0-9]+$ ]] || { log "calico: the manifest names no single version: '$version'"; exit 1; }
[[ $version == "$CALICO_VERSION" ]] || { log "calico: the module is $version, releases/ says $CALICO_VERSION"; exit 1; }
flags="-X $module/node/pkg/lifecycle/startup.VERSION=$version -X $module/node/buildinfo.GitVersion=$version"
flags+=" -X $module/node/buildinfo.BuildDate=$(module_time $module) -X $module/node/buildinfo.GitRevision=$(module_version $module)"
go_build "$out/calico-node" "$flags" $module/node/cmd/calico-node
go_build "$out/calico" "-X main.VERSION=$version" $module/cni-plugin/cmd/calico
go_build "$out/" "-X main.VERSION=$version" $module/kube-controllers/cmd/kube-controllers $module/kube-controllers/cmd/check-status
