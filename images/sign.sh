#!/usr/bin/env bash
# sign.sh PATH [OPTION...] signs a release bundle (a directory), a disk (a qcow2 or OVA) or the appliance.yaml of an
# upgrade, unless it is signed with the same key already. Options are those of directorctl sign: a director's disk needs
# --appliance VERSION.
#
# KAAS_SIGN_KEY names the private key, KAAS_SIGN_PASSWORD_FILE the file with its password if it has one. Without them a
# development key signs, which is made once in the cache (mode 0600). KAAS_SIGN_KEY=none signs nothing. The public key
# is written to PATH.pub.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director
path=${1:?usage: images/sign.sh PATH [OPTION...]}
shift
key=${KAAS_SIGN_KEY:-$cache/keys/development.key}
[[ $key != none ]] || exit 0

say() { echo "sign: $*" >&2; }

# id FILE: the key's id in the second line of a signature or of a public key.
id() { sed -n 2p "$1" 2>/dev/null | base64 -d 2>/dev/null | head -c 10 | tail -c 8 | od -An -tx1; }

ctl() {
    local go
    go=$(command -v go || echo /usr/local/go/bin/go)
    if [[ -x $go ]]; then
        # With the flags of make build, so that what it has compiled is not compiled again.
        (cd "$root" && source test/go.sh && "$go" run ./cmd/directorctl "$@")
    elif [[ -x $root/bin/directorctl ]]; then
        "$root/bin/directorctl" "$@"
    else
        say "neither Go nor bin/directorctl is here: make build, or set KAAS_SIGN_KEY=none"
        return 69
    fi
}

path=$(readlink -f "$path")
key=$(readlink -m "$key")
signed=$path.sha256
[[ ! -d $path ]] || signed=$path/release.yaml
[[ ${path##*/} != appliance.yaml ]] || signed=$path
mkdir -p "$cache/keys"
chmod 0700 "$cache/keys"
exec 8>"$cache/keys/.lock"
flock 8
if [[ -z ${KAAS_SIGN_KEY:-} && ! -f $key.pub ]]; then
    rm -f "$key" # of a run that was killed
    ctl key generate "$key" --no-password >&2
    say "made the development key $key"
fi
# done_before: whether the signature is the key's. A key without its public part beside it signs again.
done_before() {
    [[ -f $signed.minisig && -f $path.pub && -f $key.pub && ! $signed -nt $signed.minisig ]] &&
        [[ $(id "$signed.minisig") == "$(id "$key.pub")" && $(id "$path.pub") == "$(id "$key.pub")" ]]
}
if done_before; then exit 0; fi
password=()
[[ -z ${KAAS_SIGN_PASSWORD_FILE:-} ]] || password=(--password-file "$KAAS_SIGN_PASSWORD_FILE")
ctl sign "$path" "$@" --key "$key" --public-key "$path.pub" "${password[@]}" >&2
