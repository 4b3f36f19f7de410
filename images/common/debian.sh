#!/bin/bash
# debian.sh DIR OUT.tar makes the distribution part of an image: Debian 12 and the
# packages of DIR/packages.txt, nothing configured yet. What is in DIR/base is there
# before the packages. The image's build.sh calls it and keeps the result in the cache.
# usr/share/kaas/archives of the result has the name and date of each archive: how new
# the packages are.
# With SOURCE_DATE_EPOCH no file is newer than that.
set -euo pipefail
here=$(readlink -f "$1")
out=$2
suite=bookworm

# The packages come from where this machine gets its own, unless
# NODE_MIRROR names other sources (lines of a sources.list).
sources() {
    if [[ -n ${NODE_MIRROR:-} ]]; then
        printf '%s\n' "$NODE_MIRROR"
        return
    fi
    # shellcheck disable=SC2016 # apt expands them
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        awk -v suite="$suite" '$4 == "Debian" && $3 == "main" &&
            ($2 == suite || $2 == suite "-updates" || $2 == suite "-security") && !seen[$0]++ {
                print "deb", $1, $2, $3 }'
}

mapfile -t lines < <(sources)
if ((${#lines[@]} == 0)) && apt-get -qq update; then mapfile -t lines < <(sources); fi
((${#lines[@]})) || {
    echo "debian.sh: this machine's apt knows no Debian $suite; set NODE_MIRROR='deb http://MIRROR/debian $suite main'" >&2
    exit 69
}
packages=$(sed -e 's/#.*//' "$here/packages.txt" | xargs | tr ' ' ,)

# shellcheck disable=SC2016 # $1 is the new root, set by mmdebstrap
mmdebstrap --quiet --mode=root --variant=essential --architectures=amd64 \
    --include="$packages" \
    --skip=cleanup/apt/lists \
    --setup-hook='mkdir -p "$1/etc" && cp -r "'"$here"'/base/." "$1/"' \
    --customize-hook='rm -f "$1/etc/dpkg/dpkg.cfg.d/kaas" "$1"/etc/ssh/ssh_host_*' \
    --customize-hook='mkdir -p "$1/usr/share/kaas" && LC_ALL=C awk -F": " \
        "/^Codename: /{name=\$2} /^Date: /{print name, \$2; nextfile}" "$1"/var/lib/apt/lists/*Release |
        sort -u >"$1/usr/share/kaas/archives"' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*.log "$1"/var/log/apt' \
    "$suite" "$out" "${lines[@]}"
