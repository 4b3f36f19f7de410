#!/usr/bin/env bash
# CoreDNS with its default plugins, except for those that read names from a cloud and the one that reports to tracing
# services: their libraries are a fifth of its sources, and a name server of a private data centre calls none of them.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
left_out=(azure clouddns route53 trace)

plugins=$(sed -n 's/^\t_ "\(.*\)"$/\1/p' "$(module_dir github.com/coredns/coredns)/core/plugin/zplugin.go")
for name in "${left_out[@]}"; do
    path=github.com/coredns/coredns/plugin/$name
    grep -qxF "$path" <<<"$plugins" || { log "coredns: there is no plugin $name to leave out"; exit 1; }
    plugins=$(grep -vxF "$path" <<<"$plugins")
done

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
{
    printf 'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"\n'
    while IFS= read -r path; do printf '\t_ "%s"\n' "$path"; done <<<"$plugins"
    printf ')\n\nfunc main() { coremain.Run() }\n'
} >"$source/main.go"
go_build "$out/coredns" "" "$source/main.go"
