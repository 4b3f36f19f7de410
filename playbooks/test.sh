#!/usr/bin/env bash
# Tests of the playbooks that need neither root nor a network: syntax, lint, the modules, and each role that can work on
# a directory instead of a node: check mode, converge, converge again without a change, verify, remove, converge. Whole
# playbooks run in a sandbox against a pretended cluster, and are cut off before KAAS_CUTS tasks each (1; 0 for all of
# them), chosen by chance from KAAS_SEED.
# Usage: test.sh [lint|modules|roles|plays]...
set -euo pipefail
cd "$(dirname "$0")"
export ANSIBLE_CONFIG=$PWD/ansible.cfg ANSIBLE_NOCOLOR=1 ANSIBLE_STDOUT_CALLBACK=default PYTHONDONTWRITEBYTECODE=1
export ANSIBLE_LOCALHOST_WARNING=False ANSIBLE_DEPRECATION_WARNINGS=False ANSIBLE_PIPELINING=True
python=/usr/bin/python3 # the one that Ansible's package belongs to
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export ANSIBLE_HOME=$tmp/ansible

fail() {
  echo "playbooks: $*" >&2
  [ ! -s "$tmp/out" ] || cat "$tmp/out" >&2
  exit 1
}

lint() {
  local book
  for book in ./*.yml install/*.yml; do
    ansible-playbook --syntax-check -i localhost, "$book" >"$tmp/out" 2>&1 || fail "$book: syntax"
  done
  yamllint --strict . ../inventory-templates || fail "yamllint"
  ansible-lint --offline --nocolor -q >"$tmp/out" 2>&1 || fail "ansible-lint"
  echo "ok lint"
}

modules() {
  (cd tests && "$python" -m unittest -b) >"$tmp/out" 2>&1 || fail "modules"
  echo "ok modules"
}

# play FILE [OPTION...] runs a playbook of the role under test.
play() {
  ansible-playbook -i tests/inventory.yml -e "test_root=$root" -e "ansible_python_interpreter=$python" "$@" \
    >"$tmp/out" 2>&1 ||
    fail "$role: ansible-playbook $*"
}

unchanged() { ! grep -Eq '(changed|failed|unreachable)=[1-9]' "$tmp/out" || fail "$role: $*"; }

changed() { grep -Eq 'changed=[1-9]' "$tmp/out" || fail "$role: $*"; }

roles() {
  local dir role root
  for dir in roles/*/tests; do
    role=$(basename "$(dirname "$dir")")
    root=$tmp/$role
    mkdir "$root"
    play "$dir/converge.yml" --check --diff
    changed "check mode sees no change on a fresh node"
    [ -z "$(ls -A "$root")" ] || fail "$role: check mode changed the node"
    play "$dir/converge.yml"
    play "$dir/converge.yml"
    unchanged "a second run changed something"
    play "$dir/converge.yml" --check --diff
    unchanged "check mode sees a change after converging"
    play "$dir/verify.yml"
    if [ -f "$dir/remove.yml" ]; then
      play "$dir/remove.yml"
      changed "nothing was removed"
      play "$dir/remove.yml"
      unchanged "a second removal changed something"
      play "$dir/converge.yml"
      changed "converging after a removal did nothing"
    fi
    echo "ok role $role"
  done
}

plays() {
  if ! tests/plays/sandbox.sh true >"$tmp/out" 2>&1; then
    echo "skip plays: no sandbox here: $(tail -n 1 "$tmp/out")"
    return
  fi
  # Each of two sandboxes has half of the playbooks; the seed of what is left to chance is the same, and is said.
  local part pids=() failed=
  export KAAS_SEED=${KAAS_SEED:-$RANDOM}
  for part in 1 2; do
    tests/plays/sandbox.sh "$python" tests/plays/test_plays.py "$part/2" >"$tmp/out.$part" 2>&1 &
    pids+=($!)
  done
  for part in 1 2; do
    wait "${pids[part - 1]}" || failed+=" $part"
  done
  : >"$tmp/out"
  for part in $failed; do cat "$tmp/out.$part" >>"$tmp/out"; done
  [ -z "$failed" ] || fail "plays; KAAS_SEED=$KAAS_SEED brings the same cuts"
  echo "ok plays (cuts by the seed $KAAS_SEED)"
}

[ $# -gt 0 ] || set -- lint modules roles plays
for part; do
  case $part in
    lint | modules | roles | plays) "$part" ;;
    *) fail "unknown part $part" ;;
  esac
done
