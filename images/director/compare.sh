#!/bin/bash
# compare.sh builds the appliance twice from nothing, each time of a clone of its own of the last commit and without any
# cache but those of downloads, and compares the results. It prints the files that differ, and where. It ends with 0 if
# only signatures differ, which have the time in them; with 1 if more does.
#
# KAAS_COMPARE_KEEP=1 keeps both builds. It takes as long as two builds of Debian and of all programs.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
source=$(readlink -f "$here/../..")
work=$(mktemp -d /var/tmp/director-appliance-compare.XXXXXX)
finish() {
    [[ -n ${KAAS_COMPARE_KEEP:-} ]] || { chmod -R u+w "$work" && rm -rf --one-file-system "$work"; }
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { echo "compare: $*" >&2; }
[[ -z $(git -C "$source" status --porcelain) ]] || say "what is not committed is not built"
commit=$(git -C "$source" rev-parse HEAD) # a later one must not get into the second build

# Both builds are signed with the same key: the public key is part of what they make.
KAAS_SIGN_KEY=$work/sign.key
export KAAS_SIGN_KEY
go=$(command -v go || echo /usr/local/go/bin/go)
(cd "$source" && GOFLAGS=-mod=readonly CGO_ENABLED=0 \
    "$go" run ./cmd/directorctl key generate "$KAAS_SIGN_KEY" --no-password) >&2

for n in 1 2; do
    began=$SECONDS
    git clone --quiet --no-hardlinks --no-checkout "$source" "$work/source-$n"
    git -C "$work/source-$n" checkout --quiet --detach "$commit"
    XDG_CACHE_HOME=$work/cache-$n GOCACHE=$work/go-$n "$work/source-$n/images/director/build.sh" |
        tail -n 1 >"$work/made-$n"
    say "build $n took $((SECONDS - began)) s"
done
first=$(cat "$work/made-1") second=$(cat "$work/made-2")

# The parts of the archive, without its signature.
for dir in "$first" "$second"; do
    mkdir "$dir/upgrade"
    tar -xf "$dir/director-upgrade.tar" -C "$dir/upgrade" --exclude '*.minisig'
    rm "$dir/director-upgrade.tar"
done

wrong=0
while read -r file; do
    if [[ ! -f $first/$file || ! -f $second/$file ]]; then
        echo "only one build has $file"
        wrong=1
    elif cmp -s "$first/$file" "$second/$file"; then
        echo "same: $file"
    elif [[ $file == *.minisig ]]; then
        echo "differs, as signatures do: $file"
    else
        wrong=1
        echo "DIFFERS: $file: $(cmp "$first/$file" "$second/$file" 2>&1 || :)"
        case $file in
        *.txt | *.json | *.yaml | *.sha256) diff "$first/$file" "$second/$file" | head -n 20 || : ;;
        *.qcow2) qemu-img compare "$first/$file" "$second/$file" || : ;;
        esac
    fi
done < <({ (cd "$first" && find . -type f) && (cd "$second" && find . -type f); } | sed 's,^\./,,' | LC_ALL=C sort -u)
[[ ${first##*/} == "${second##*/}" ]] || {
    echo "DIFFERS: the hash of what went in: ${first##*/} and ${second##*/}"
    wrong=1
}
((wrong == 0))
echo "Both builds have the same bytes but for their signatures."
