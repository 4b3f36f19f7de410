#!/usr/bin/env bash
# Kubernetes: the programs of the nodes and of the control plane.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
module=k8s.io/kubernetes
version=$(module_version $module)
built=$(module_time $module)
IFS=. read -r major minor _ <<<"${version#v}"
flags=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    flags+=" -X $package.gitTreeState=clean -X $package.buildDate=$built"
done
# The three programs of the node image first: together, since they share most packages.
go_build "$out/" "$flags" $module/cmd/kubeadm $module/cmd/kubelet $module/cmd/kubectl
go_build "$out/" "$flags" $module/cmd/kube-apiserver $module/cmd/kube-controller-manager \
    $module/cmd/kube-scheduler $module/cmd/kube-proxy
