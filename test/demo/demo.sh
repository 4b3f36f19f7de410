#!/usr/bin/env bash
# The demo: a real cluster on real VMs, made by the director from docs/examples/demo.
#
#   demo.sh up       build or take from the cache, start the lab and the director, create the cluster; changes nothing
#                    when it is there
#   demo.sh clean    take all of it away, except the caches
#   demo.sh ctl ...  directorctl, as the demo's admin
#   demo.sh config RELEASE IMAGE  write the director's configuration alone, for a bundle's directory and an image's file
#
# Environment: DEMO_DIR (state of the director; default /var/lib/director-demo), KUBERNETES (minor version; default
# 1.37), DEMO_PORT (of the console on this machine's own loopback; default 8443).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DEMO_DIR=${DEMO_DIR:-/var/lib/director-demo}
KUBERNETES=${KUBERNETES:-1.37}
DEMO_PORT=${DEMO_PORT:-8443}
lab=$root/test/lab/lab
examples=$root/docs/examples/demo
models=$DEMO_DIR/models

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
die() { echo "demo: $*" >&2; exit 1; }

ctl() {
    "$lab" exec -- env DIRECTOR_CONFIG="$DEMO_DIR/cli.yaml" "$root/bin/directorctl" "$@"
}

need_root() {
    [[ $(id -u) == 0 ]] || die "must run as root: it makes VMs, bridges and namespaces"
}

# The last line of a build script names what it made.
artefact() { "$@" | tail -n 1; }

# A process is ours if it has the number and the start time of the file.
running() { # file
    local pid start now
    read -r pid start 2>/dev/null <"$1" || return 1
    now=$(awk '{print $22}' "/proc/$pid/stat" 2>/dev/null) || return 1
    [[ $now == "$start" ]] && echo "$pid"
}

director_pid() { running "$DEMO_DIR/pid"; }

write_config() { # release directory, image file
    mkdir -p "$DEMO_DIR" "$models"
    chmod 700 "$DEMO_DIR"
    if [[ ! -s $DEMO_DIR/admin.password ]]; then
        (umask 077 && head -c 18 /dev/urandom | base64 | tr '+/' '-_' >"$DEMO_DIR/admin.password")
    fi
    cat >"$DEMO_DIR/director.yaml" <<CONFIG
stateDir: $DEMO_DIR/state
listen: 172.30.0.1:8443
registryListen: :5000
address: 172.30.0.1
adminPasswordFile: $DEMO_DIR/admin.password
bundleDirs: ["$(dirname "$1")"]
imageDirs: ["$(dirname "$2")"]
trustedKeys: ["$1.pub", "$2.pub"]
notice: >
  This director is a demo. "make demo" makes the cluster demo, of the master demo-master-1 and the worker demo-worker-1:
  two VMs on a hypervisor host of the lab.

  When its plan is done, the administrators' kubeconfig is $DEMO_DIR/kubeconfig. The cluster's network is the lab's own,
  so kubectl runs inside of it:
  test/lab/lab exec -- $DEMO_DIR/kubectl --kubeconfig $DEMO_DIR/kubeconfig get nodes -o wide

  To try next: open Clusters, choose demo, read the plan that made it, and what the VM of a node prints on its console.
  Then choose a node and rehearse its drain under "Work on"; a rehearsal changes nothing.

  "make demo/clean" takes everything away.
CONFIG
}

start_director() {
    if director_pid >/dev/null; then
        echo "The director runs already."
        return
    fi
    # The director lives in the lab and ends with it.
    "$lab" exec -- bash -c "setsid '$root/bin/director' -config '$DEMO_DIR/director.yaml' \
        >>'$DEMO_DIR/director.log' 2>&1 </dev/null & echo \$!" >"$DEMO_DIR/pid.inside"
    local tries
    for ((tries = 0; tries < 120; tries++)); do
        if "$lab" exec -- curl -fsS --cacert "$DEMO_DIR/state/tls/ca.crt" \
            https://172.30.0.1:8443/api/v1/readyz >/dev/null 2>&1; then
            outside_pid
            echo "The director answers at https://172.30.0.1:8443 inside the lab; its log is $DEMO_DIR/director.log."
            return
        fi
        sleep 0.25
    done
    tail -n 20 "$DEMO_DIR/director.log" >&2
    die "the director does not answer"
}

# The lab has process ids of its own: find the director's outer one by its command line's own state directory.
outside_pid() {
    local p
    for p in /proc/[0-9]*; do
        if [[ $(tr '\0' ' ' <"$p/cmdline" 2>/dev/null) == \
            "$root/bin/director -config $DEMO_DIR/director.yaml "* ]]; then
            echo "${p#/proc/} $(awk '{print $22}' "$p/stat")" >"$DEMO_DIR/pid"
            return
        fi
    done
}

stop_director() {
    local pid
    pid=$(director_pid) || return 0
    kill -TERM "$pid"
    while director_pid >/dev/null; do sleep 0.1; done
    rm -f "$DEMO_DIR/pid"
}

# The lab's network is its own. What comes to this machine's loopback is handed to the director in it, so that a browser
# reaches the console.
start_forward() {
    running "$DEMO_DIR/forward.pid" >/dev/null && return
    setsid socat "TCP-LISTEN:$DEMO_PORT,bind=127.0.0.1,reuseaddr,fork" \
        "EXEC:'$lab' exec -- socat STDIO TCP\\:172.30.0.1\\:8443" \
        >>"$DEMO_DIR/forward.log" 2>&1 </dev/null &
    local pid=$! tries
    echo "$pid $(awk '{print $22}' "/proc/$pid/stat")" >"$DEMO_DIR/forward.pid"
    for ((tries = 0; tries < 40; tries++)); do
        if curl -fsSo /dev/null --cacert "$DEMO_DIR/state/tls/ca.crt" \
            --connect-to "172.30.0.1:8443:127.0.0.1:$DEMO_PORT" \
            https://172.30.0.1:8443/api/v1/readyz 2>/dev/null; then
            return
        fi
        running "$DEMO_DIR/forward.pid" >/dev/null || break
        sleep 0.25
    done
    tail -n 5 "$DEMO_DIR/forward.log" >&2
    die "the console cannot be reached on this machine; is port $DEMO_PORT in use?" \
        "DEMO_PORT=PORT make demo takes another"
}

stop_forward() {
    local pid
    pid=$(running "$DEMO_DIR/forward.pid") || return 0
    kill -TERM "$pid"
    rm -f "$DEMO_DIR/forward.pid"
}

login() {
    ctl whoami >/dev/null 2>&1 && return
    ctl login --server https://172.30.0.1:8443 --ca-file "$DEMO_DIR/state/tls/ca.crt" --user admin \
        --password-file "$DEMO_DIR/admin.password"
}

render_models() { # release directory, image file
    local version sum
    version=$(sed -n 's/^ *kubernetes: *//p' "$1/release.yaml" | tr -d '"' | head -n 1)
    sum=$(cut -d' ' -f1 "$2.sha256")
    cp "$examples"/*.yaml "$models/"
    local doc
    for doc in release image; do
        sed -e "s|@BUNDLE@|$1|" -e "s|@IMAGE@|$2|" -e "s|@SHA256@|$sum|" -e "s|@KUBERNETES@|$version|" \
            "$examples/$doc.yaml.in" >"$models/$doc.yaml"
    done
}

# Debian's packages for the node image keep the network and one core busy for a minute, while compilers wait for
# modules: they are installed in the background, and end with this script. Where that fails, the node image is built
# without it, and says why.
prefetch_packages() {
    "$root/images/release/build.sh" --kubernetes "$KUBERNETES" --cached >/dev/null 2>&1 && return
    set -m # a group of its own
    "$root/images/node/build.sh" --base >/dev/null 2>&1 &
    set +m
    trap 'kill %1 2>/dev/null || true' EXIT
}

up() {
    need_root
    local began=$SECONDS release image
    say "Packages"
    "$root/test/lab/need.sh" ansible openssh-client curl socat
    say "Programs"
    prefetch_packages
    make -C "$root" --no-print-directory -j3 build
    say "Release bundle of Kubernetes $KUBERNETES (built once, then cached)"
    release=$(artefact "$root/images/release/build.sh" --kubernetes "$KUBERNETES")
    echo "$release"
    say "Node image (built once, then cached)"
    image=$(artefact "$root/images/node/build.sh" --release "$release")
    trap - EXIT
    echo "$image"
    local built=$((SECONDS - began))
    say "Lab: a hypervisor host in namespaces of its own ($("$lab" kvm))"
    "$lab" up
    say "Director"
    write_config "$release" "$image"
    start_director
    start_forward
    login
    say "Models: $models"
    render_models "$release" "$image"
    local before=$SECONDS
    ctl apply -f "$models" --start --wait --yes
    local created=$((SECONDS - before))
    say "Cluster"
    ctl kubeconfig demo --admin -o "$DEMO_DIR/kubeconfig"
    "$lab" exec -- "$release/bin/kubectl" --kubeconfig "$DEMO_DIR/kubeconfig" get nodes,pods -A
    ln -sfn "$release/bin/kubectl" "$DEMO_DIR/kubectl"
    cat <<NEXT

Done in $((SECONDS - began)) s: building $built s, the cluster $created s.

The console is at https://127.0.0.1:$DEMO_PORT on this machine. Log in as admin.
The password is in $DEMO_DIR/admin.password.
The director has made its certificate itself, so the browser warns: its fingerprint is
$(openssl x509 -in "$DEMO_DIR/state/tls/server.crt" -noout -fingerprint -sha256 2>/dev/null | cut -d= -f2).

Three things to try next (the cluster lives in the lab's own network, so commands run inside it):

  test/lab/lab exec -- $DEMO_DIR/kubectl --kubeconfig $DEMO_DIR/kubeconfig get nodes -o wide
  test/demo/demo.sh ctl describe cluster demo
  test/demo/demo.sh ctl delete cluster demo --delete-data --wait

make demo/clean takes everything away.
NEXT
}

clean() {
    need_root
    stop_forward
    stop_director
    "$lab" down
    rm -rf "$DEMO_DIR"
    echo "The demo is gone; the caches stay in ${XDG_CACHE_HOME:-$HOME/.cache}/director."
}

case ${1:-} in
    up) up ;;
    clean) clean ;;
    config)
        (($# == 3)) || die "config takes the directory of a release bundle and the file of an image"
        write_config "$2" "$3"
        ;;
    ctl)
        shift
        ctl "$@"
        ;;
    *)
        sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
