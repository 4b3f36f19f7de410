#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_kubeadm
short_description: Makes a node a member of a cluster with kubeadm, or takes it out, as often as asked
description:
  - Wraps C(kubeadm init), C(kubeadm join) and C(kubeadm reset) so that a repeat changes nothing and an attempt that was
    cut off at any moment is continued or done again.
  - A small state file says whether an attempt was started and whether it ended. A lock, which kubeadm inherits, keeps a
    second attempt away from one that outlived its connection.
  - C(init) that was cut off is continued when its API server answers, and is reset and done again when it does not.
    After C(init) has ended once, nothing is ever reset by it.
  - A node that carries the state of a cluster which this module did not make is refused.
options:
  action:
    description:
      - C(init) makes the first control plane. C(join) adds a master or a worker, as O(config) says. C(reset) takes
        everything away.
      - C(token) makes the bootstrap tokens of O(config) usable again when they have expired; it runs on a master.
      - C(auto) is C(join) when the API server at O(endpoint) answers with a certificate of O(ca_file), and C(init)
        otherwise.
    type: str
    choices: [init, join, auto, token, reset]
    required: true
  config:
    description: The configuration for kubeadm; with C(auto) the one for C(init).
    type: path
  join_config:
    description: The configuration for C(join) that C(auto) may choose.
    type: path
  ask_for_token:
    description:
      - With C(join), a node that is no member yet first asks the API server at O(endpoint) whether it takes the
        bootstrap tokens of O(config). If not, it changes nothing and returns RV(token_wanted). So no master is asked
        about tokens that are good.
    type: bool
    default: false
  endpoint:
    description: The address of the cluster's API, such as https://10.88.0.10:6443.
    type: str
  local_endpoint:
    description: The address of this master's own API server. Gates of a master poll it.
    type: str
  ca_file:
    description: The certificate of the cluster's CA on the node.
    type: path
    default: /etc/kubernetes/pki/ca.crt
  state_file:
    description: Where the state is kept.
    type: path
    default: /etc/kubernetes/kaas/state.json
  manifest:
    description: The static pod of this node's API server; an C(init) that got as far as writing it may be continued.
    type: path
    default: /etc/kubernetes/manifests/kube-apiserver.yaml
  lock_file:
    description: What is locked while kubeadm runs.
    type: path
    default: /run/lock/kaas-kubeadm.lock
  kubeadm:
    description: The program.
    type: str
    default: kubeadm
  kubectl:
    description: The program.
    type: str
    default: kubectl
  kubeconfig:
    description: The kubeconfig on the master, for C(token).
    type: path
    default: /etc/kubernetes/admin.conf
  leftovers:
    description: Paths whose presence without a state file means that something else made this node a member.
    type: list
    elements: str
    default: [/etc/kubernetes/kubelet.conf, /etc/kubernetes/manifests/kube-apiserver.yaml, /var/lib/etcd/member]
  preserve:
    description: Files that survive the reset of an attempt that was cut off, such as the CAs that the director placed.
    type: list
    elements: str
    default: []
  ignore_preflight_errors:
    description: Preflight checks of kubeadm that may fail.
    type: list
    elements: str
    default: []
  remove:
    description: Paths, wildcards allowed, that C(reset) removes.
    type: list
    elements: str
    default: []
  links:
    description: Network links, wildcards allowed, that C(reset) removes.
    type: list
    elements: str
    default: []
  nft_tables:
    description: Names of nftables tables, in any family, that C(reset) removes.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds after which a gate or a run of kubeadm is given up.
    type: int
    default: 900
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Join the cluster
  kaas_kubeadm:
    action: join
    config: /etc/kubernetes/kaas/join.yaml
    endpoint: https://10.88.0.10:6443
    ca_file: /etc/kubernetes/kaas/ca.crt
"""

RETURN = r"""
did:
  description: What was done, in order; empty when nothing was.
  type: list
  elements: str
  returned: always
seconds:
  description: How long each run of kubeadm took.
  type: dict
  returned: always
token_wanted:
  description: Whether O(ask_for_token) kept the node from joining; a master has to have C(token) done first.
  type: bool
  returned: always
"""

import fnmatch
import json
import os
import shutil
import stat
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import (
    TOKEN, Failure, Kubectl, api_ready, api_status, clean, existing, kubeadm_says, locked, read_json, run, wait_for,
    write_atomically)

# What kubeadm lets bootstrap tokens read, and joins begin with.
FOR_TOKENS = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
# A continued init finds its own files, its own etcd and its own open ports.
CONTINUED = ["DirAvailable--var-lib-etcd", "Port-6443", "Port-10250", "Port-10257", "Port-10259", "Port-2379",
             "Port-2380", "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml",
             "FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml",
             "FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml",
             "FileAvailable--etc-kubernetes-manifests-etcd.yaml"]


class Member:
    """This node's membership in a cluster."""

    def __init__(self, args, check):
        self.args, self.check = args, check
        self.did, self.seconds, self.token_wanted = [], {}, False
        self.lock_fd = None

    # state

    def phase(self):
        """Return started, done, leaving, or None when nothing was ever started here."""
        return (read_json(self.args["state_file"]) or {}).get("phase")

    def record(self, action, phase):
        """Write the state; what follows can rely on it after a crash."""
        write_atomically(self.args["state_file"],
                         json.dumps({"action": action, "phase": phase}, sort_keys=True).encode("utf-8") + b"\n", 0o600)

    def ready(self, server):
        """Say whether the API server answers with the cluster's certificate."""
        return api_ready(server, self.args["ca_file"])

    def gate(self, server, doing):
        """Wait until the API server is ready."""
        if not wait_for(lambda: self.ready(server), self.args["timeout"]):
            raise Failure("%s: the API server at %s was not ready within %d s" % (doing, server, self.args["timeout"]),
                          "Look at `crictl ps -a` and `journalctl -u kubelet` on the master that holds this address")

    # kubeadm

    def kubeadm(self, action, *argv):
        """Run kubeadm."""
        begin = time.monotonic()
        rc, out, err = run([self.args["kubeadm"], action] + list(argv), timeout=self.args["timeout"],
                           pass_fds=() if self.lock_fd is None else (self.lock_fd,))
        self.seconds[action] = round(time.monotonic() - begin, 1)
        self.did.append(action)
        if rc != 0:
            hint = "The next run does this node again from the start"
            if action == "reset":
                hint = "Look at the message, mend the node, and run again"
            raise Failure("kubeadm %s failed: %s" % (action, kubeadm_says(out, err)), hint,
                          rc=rc, stdout=clean(out), stderr=clean(err))

    def enter(self, action, config, continued):
        """Run kubeadm init or join."""
        ignore = self.args["ignore_preflight_errors"] + (CONTINUED if continued else [])
        argv = ["--config", config]
        if ignore:
            argv.append("--ignore-preflight-errors=" + ",".join(ignore))
        self.kubeadm(action, *argv)

    def start_over(self):
        """Take away what an attempt that was cut off has left, and keep the files that it was given."""
        kept = []
        for path in self.args["preserve"]:
            try:
                with open(path, "rb") as file:
                    kept.append((path, file.read(), stat.S_IMODE(os.stat(path).st_mode)))
            except FileNotFoundError:
                pass
        try:
            self.kubeadm("reset", "--force")
        finally:
            for path, data, mode in kept:
                write_atomically(path, data, mode)

    # actions

    def ensure(self, action):
        """Make this node a member."""
        args = self.args
        phase = self.phase()
        if phase == "done":
            if not self.check:
                self.gate(args["local_endpoint"] or args["endpoint"], "this node is a member")
            return
        if phase is None:
            found = existing(args["leftovers"])
            if found:
                raise Failure("this node already belongs to a cluster: %s exists" % ", ".join(found),
                              "Run uninstall.yml on it first, or recreate the VM")
        if self.check:
            self.did.append(action)
            return
        joined = False
        if action == "auto":
            # Whoever began as the first master continues as it: its own API server may be what answers.
            began = (read_json(args["state_file"]) or {}).get("action")
            joined = began == "join" or (began != "init" and self.ready(args["endpoint"]))
            action = "join" if joined else "init"
        config = args["join_config"] if joined else args["config"]
        if action == "join":
            self.gate(args["endpoint"], "cannot join")
            self.token_wanted = args["ask_for_token"] and not self.token_taken()
            if self.token_wanted:
                return
        continued = False
        if phase is not None:
            server = args["local_endpoint"] or args["endpoint"]
            placed = action == "init" and os.path.exists(args["manifest"])
            continued = bool(placed and wait_for(lambda: self.ready(server), args["timeout"] / 3))
            if not continued:
                self.start_over()
        self.record(action, "started")
        self.enter(action, config, continued)
        self.record(action, "done")
        if args["local_endpoint"]:
            self.gate(args["local_endpoint"], "this node has become a member")

    def tokens(self):
        """Return the bootstrap tokens of the configuration."""
        with open(self.args["config"], encoding="utf-8") as file:
            return sorted(set(TOKEN.findall(file.read())))

    def token_taken(self):
        """Say whether the API server takes the tokens of the configuration."""
        url, tokens = self.args["endpoint"].rstrip("/") + FOR_TOKENS, self.tokens()
        return bool(tokens) and all(api_status(url, self.args["ca_file"], token=token) == 200 for token in tokens)

    def token(self):
        """Have the bootstrap tokens of the configuration in the cluster."""
        wanted = sorted({token.split(".")[0] for token in self.tokens()})
        kubectl = Kubectl(self.args["kubectl"], self.args["kubeconfig"], self.args["timeout"])
        have = kubectl.do("-n", "kube-system", "get", "secrets", "-o", "name", "--field-selector",
                          "type=bootstrap.kubernetes.io/token")
        if all("secret/bootstrap-token-" + name in have.split() for name in wanted):
            return
        self.did.append("token")
        if self.check:
            return
        rc, out, err = run([self.args["kubeadm"], "token", "create", "--config", self.args["config"],
                            "--kubeconfig", self.args["kubeconfig"]], timeout=self.args["timeout"])
        if rc != 0 and "already exists" not in err:
            raise Failure("kubeadm token create failed: %s" % kubeadm_says(out, err), rc=rc, stderr=clean(err))

    def leave(self):
        """Take everything away that makes this node a member."""
        args = self.args
        member = existing(args["leftovers"] + [args["state_file"]])
        if member and self.check:
            self.did.append("reset")
        elif member:
            if self.phase():
                self.record("reset", "leaving")
            self.kubeadm("reset", "--force")
        for path in existing(args["remove"]):
            self.did.append("remove " + path)
            if not self.check:
                remove(path)
        for link in links(args["links"]):
            self.did.append("remove link " + link)
            if not self.check:
                run(["ip", "link", "delete", link], timeout=60)
        for family, table in tables(args["nft_tables"]):
            self.did.append("remove table %s %s" % (family, table))
            if not self.check:
                run(["nft", "delete", "table", family, table], timeout=60)


def remove(path):
    """Remove a file or a tree; a mount point is emptied and stays."""
    if os.path.isdir(path) and not os.path.islink(path):
        if os.path.ismount(path):
            for name in os.listdir(path):
                remove(os.path.join(path, name))
        else:
            shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def links(patterns):
    """Return the network links that match the patterns."""
    try:
        names = sorted(os.listdir("/sys/class/net")) if patterns else []
    except OSError:
        return []
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def tables(names):
    """Return (family, name) of the nftables tables with one of the names."""
    if not names:
        return []
    rc, out, _ = run(["nft", "list", "tables"], timeout=60)
    found = [line.split()[1:3] for line in out.splitlines() if line.startswith("table ")] if rc == 0 else []
    return [(family, table) for family, table in found if table in names]


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["init", "join", "auto", "token", "reset"], "required": True},
            "config": {"type": "path"},
            "join_config": {"type": "path"},
            "ask_for_token": {"type": "bool", "default": False},
            "endpoint": {"type": "str"},
            "local_endpoint": {"type": "str"},
            "ca_file": {"type": "path", "default": "/etc/kubernetes/pki/ca.crt"},
            "state_file": {"type": "path", "default": "/etc/kubernetes/kaas/state.json"},
            "manifest": {"type": "path", "default": "/etc/kubernetes/manifests/kube-apiserver.yaml"},
            "lock_file": {"type": "path", "default": "/run/lock/kaas-kubeadm.lock"},
            "kubeadm": {"type": "str", "default": "kubeadm"},
            "kubectl": {"type": "str", "default": "kubectl"},
            "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
            "leftovers": {"type": "list", "elements": "str", "default": [
                "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/manifests/kube-apiserver.yaml",
                "/var/lib/etcd/member"]},
            "preserve": {"type": "list", "elements": "str", "default": []},
            "ignore_preflight_errors": {"type": "list", "elements": "str", "default": []},
            "remove": {"type": "list", "elements": "str", "default": []},
            "links": {"type": "list", "elements": "str", "default": []},
            "nft_tables": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 900},
        },
        required_if=[
            ("action", "init", ("config", "endpoint")),
            ("action", "join", ("config", "endpoint")),
            ("action", "auto", ("config", "join_config", "endpoint")),
            ("action", "token", ("config",)),
        ],
        supports_check_mode=True)
    args = module.params
    member = Member(args, module.check_mode)
    try:
        if module.check_mode:
            act(member, args["action"])
        else:
            with locked(args["lock_file"], args["timeout"]) as fd:
                member.lock_fd = fd
                act(member, args["action"])
    except Failure as err:
        module.fail_json(changed=bool(member.did), did=member.did, seconds=member.seconds, **err.result())
    except (OSError, subprocess.SubprocessError) as err:
        module.fail_json(msg="%s: %s" % (args["action"], err), changed=bool(member.did), did=member.did,
                         seconds=member.seconds)
    module.exit_json(changed=bool(member.did), did=member.did, seconds=member.seconds,
                     token_wanted=member.token_wanted)


def act(member, action):
    """Do the action."""
    if action == "reset":
        member.leave()
    elif action == "token":
        member.token()
    else:
        member.ensure(action)


if __name__ == "__main__":
    main()
