#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_node_info
short_description: Reads what the roles want to know about a node in one task
description:
  - Answers in one task what would need a dozen (host name, swap, modules, kernel settings, what the image carries,
    which programs are there), so that the tasks that are not needed can be skipped without asking the node again.
  - Takes the place of fact gathering, which is off.
options:
  root:
    description: Where the file system of the node begins; other than / only in tests.
    type: path
    default: /
  modules:
    description: Kernel modules whose presence is asked for.
    type: list
    elements: str
    default: []
  sysctls:
    description: Kernel settings and their wanted values.
    type: dict
    default: {}
  programs:
    description: Programs that have to be in PATH.
    type: list
    elements: str
    default: []
  state_file:
    description: Where M(kaas_kubeadm) keeps the node's membership.
    type: path
    default: /etc/kubernetes/kaas/state.json
  versions:
    description: Programs that are asked for their version, at the same time. An upgrade in place leaves others than the
      image carried.
    type: list
    elements: str
    default: []
  address:
    description: Address whose network interface is looked for.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Look at the node
  kaas_node_info:
    modules: [overlay, br_netfilter]
    sysctls: {net.ipv4.ip_forward: "1"}
    programs: [kubelet]
  register: __node_prepare_info
"""

RETURN = r"""
node:
  description: What was found.
  type: dict
  returned: always
  contains:
    hostname:
      description: The running host name.
      type: str
    swap:
      description: Active swap devices and files.
      type: list
      elements: str
    modules_missing:
      description: Wanted kernel modules that are neither loaded nor built in.
      type: list
      elements: str
    sysctls_differing:
      description: Wanted kernel settings with another value, or none.
      type: list
      elements: str
    programs_missing:
      description: Wanted programs that are not in PATH.
      type: list
      elements: str
    release:
      description: The content of /etc/kaas-release, which is what the image carried; empty when there is none.
      type: dict
    versions:
      description: What the programs of O(versions) say, such as v1.37.2; without those that say nothing.
      type: dict
    machine_id:
      description: The content of /etc/machine-id.
      type: str
    interface:
      description: Name of the network interface that has O(address); empty when none has.
      type: str
    nameservers:
      description: The name servers that pods with the node's resolver would ask.
      type: list
      elements: str
    memory_mb:
      description: Memory in MiB.
      type: int
    cpus:
      description: Number of CPUs.
      type: int
    member:
      description: Whether the node has become a member of a cluster.
      type: bool
"""

import concurrent.futures
import json
import os
import re
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import read_json, run

VERSION = re.compile(r"\bv\d+\.\d+\.\d+[-+.\w]*")
ASK = {"kubeadm": ["version", "-o", "short"], "kubectl": ["version", "--client"]}


class Node:
    """A node's file system."""

    PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def __init__(self, root):
        self.root = root

    def path(self, *parts):
        """Return the path below root."""
        return os.path.join(self.root, *[part.lstrip("/") for part in parts])

    def text(self, *parts):
        """Return a file's text, empty when it cannot be read."""
        try:
            with open(self.path(*parts), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def has_module(self, name):
        """Say whether a kernel module is loaded or built in."""
        name = name.replace("-", "_")
        if os.path.isdir(self.path("sys/module", name)):
            return True
        builtin = self.text("lib/modules", os.uname().release, "modules.builtin")
        return any(os.path.basename(line).replace("-", "_") == name + ".ko" for line in builtin.split())

    def sysctl(self, name):
        """Return the value of a kernel setting, None when there is no such setting."""
        path = self.path("proc/sys", name.replace(".", "/"))
        if not os.path.exists(path):
            return None
        return " ".join(self.text("proc/sys", name.replace(".", "/")).split())

    def program(self, name):
        """Return the path of a program, None when it is not in PATH."""
        return shutil.which(name, path=os.pathsep.join(self.path(part) for part in self.PATH.split(os.pathsep)))

    def version(self, name):
        """Return what a program says that its version is."""
        path = self.program(name)
        rc, out, _ = run([path] + ASK.get(name, ["--version"]), timeout=60) if path else (127, "", "")
        found = VERSION.search(out) if rc == 0 else None
        return found.group(0) if found else ""

    def versions(self, names):
        """Return the versions of programs by name."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
            return {name: version for name, version in zip(names, pool.map(self.version, names)) if version}

    def interface(self, address):
        """Return the network interface that has the address."""
        rc, out, _ = run([self.program("ip") or "ip", "-json", "address"], timeout=30) if address else (1, "", "")
        for link in json.loads(out) if rc == 0 else []:
            if any(item.get("local") == address for item in link.get("addr_info", [])):
                return link["ifname"]
        return ""

    def release(self):
        """Return /etc/kaas-release."""
        try:
            found = json.loads(self.text("etc/kaas-release"))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def nameservers(self):
        """Return the servers in the file that the kubelet hands to pods."""
        upstream = "run/systemd/resolve/resolv.conf"  # kubeadm picks it when systemd-resolved runs
        source = upstream if os.path.exists(self.path(upstream)) else "etc/resolv.conf"
        return [line.split()[1] for line in self.text(source).splitlines()
                if line.split()[:1] == ["nameserver"] and len(line.split()) > 1]

    def memory_mb(self):
        """Return the memory in MiB."""
        for line in self.text("proc/meminfo").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
        return 0


def look(node, args):
    """Return what the module answers."""
    return {
        "hostname": node.text("proc/sys/kernel/hostname").strip(),
        "swap": [line.split()[0] for line in node.text("proc/swaps").splitlines()[1:] if line.strip()],
        "modules_missing": [name for name in args["modules"] if not node.has_module(name)],
        "sysctls_differing": sorted(
            name for name, value in args["sysctls"].items() if node.sysctl(name) != " ".join(str(value).split())),
        "programs_missing": [name for name in args["programs"] if node.program(name) is None],
        "release": node.release(),
        "versions": node.versions(args["versions"]),
        "machine_id": node.text("etc/machine-id").strip(),
        "interface": node.interface(args["address"]),
        "nameservers": node.nameservers(),
        "memory_mb": node.memory_mb(),
        "cpus": os.cpu_count() or 0,
        "member": (read_json(node.path(args["state_file"])) or {}).get("phase") == "done",
    }


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "modules": {"type": "list", "elements": "str", "default": []},
            "sysctls": {"type": "dict", "default": {}},
            "programs": {"type": "list", "elements": "str", "default": []},
            "versions": {"type": "list", "elements": "str", "default": []},
            "address": {"type": "str", "default": ""},
            "state_file": {"type": "path", "default": "/etc/kubernetes/kaas/state.json"},
        },
        supports_check_mode=True)
    module.exit_json(changed=False, node=look(Node(module.params["root"]), module.params))


if __name__ == "__main__":
    main()
