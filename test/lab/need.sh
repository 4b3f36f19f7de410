#!/bin/bash
# need.sh PACKAGE... makes sure that Debian packages are installed.
#
# Only what is missing is installed, without recommended packages and without
# starting any service. Several callers may run at once. With nothing to do it
# is silent and takes a few milliseconds; otherwise it says one line.
set -euo pipefail

missing() {
    local p
    for p in "$@"; do
        [[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" == installed ]] || echo "$p"
    done
}

(($#)) || { echo "usage: need.sh PACKAGE..." >&2; exit 64; }
command -v dpkg-query >/dev/null || {
    echo "need.sh: this needs Debian (no dpkg-query); install by hand: $*" >&2
    exit 69
}
[[ -n "$(missing "$@")" ]] || exit 0
((EUID == 0)) || { echo "need.sh: run as root, or: sudo apt-get install $(missing "$@" | xargs)" >&2; exit 77; }

exec 9>/run/lock/director-need.lock
flock 9
mapfile -t want < <(missing "$@") # again: another caller may have been quicker
((${#want[@]})) || exit 0
echo "installing ${want[*]}" >&2

log=$(mktemp /tmp/director-need.XXXXXX)
policy=/usr/sbin/policy-rc.d
# A policy of ours, left by a run that was killed, is taken away again too.
if [[ ! -e $policy ]] || grep -qs director-need "$policy"; then
    trap 'rm -f "$log" "$policy"' EXIT
    printf '#!/bin/sh\n# director-need: packages are installed, services are not started\nexit 101\n' >"$policy"
    chmod 755 "$policy"
else
    trap 'rm -f "$log"' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
apt_get() { apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@" >>"$log" 2>&1 9>&-; }
update() {
    # One broken source of the machine's own must not keep us from the rest.
    apt_get update || echo "need.sh: apt-get update was not complete" >&2
}
install() { apt_get install --no-install-recommends "${want[@]}"; }

updated=
if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
    update
    updated=1
fi
if ! install; then
    [[ -n $updated ]] || update
    if [[ -n $updated ]] || ! install; then
        tail -n 20 "$log" >&2
        echo "need.sh: could not install ${want[*]}; look at the lines above, then run: apt-get install ${want[*]}" >&2
        exit 69
    fi
fi
