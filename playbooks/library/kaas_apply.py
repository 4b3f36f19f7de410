#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_apply
short_description: Applies manifests with kubectl on a master and says what changed
description:
  - Runs C(kubectl apply) with the manifests on stdin and counts what it created or configured.
  - When O(digest_name) is set, a config map of that name keeps the SHA-256 of what was applied last. As long as it is the same and
    all objects of O(present) exist, nothing is sent, which saves a slow master most of the work. Otherwise everything is applied.
  - While the API server cannot be reached the call is repeated until O(timeout).
options:
  manifest:
    description: One or more YAML documents.
    type: str
    required: true
  digest_name:
    description: Name of the config map in C(kube-system) that keeps the digest.
    type: str
  present:
    description: Objects, written as C(kind/name) with O(present_namespace), that must exist for the digest to count.
    type: list
    elements: str
    default: []
  present_namespace:
    description: Where the objects of O(present) are.
    type: str
    default: kube-system
  kubeconfig:
    description: The kubeconfig on the master.
    type: path
    default: /etc/kubernetes/admin.conf
  kubectl:
    description: The program.
    type: str
    default: kubectl
  timeout:
    description: Seconds after which the call is given up.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: Asks the server what it would do; on a node that is no master yet everything counts as changed.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Apply the pod network
  kaas_apply:
    manifest: "{{ lookup('ansible.builtin.file', pod_network_manifest) }}"
    digest_name: kaas-pod-network
    present: [daemonset/calico-node]
"""

RETURN = r"""
objects:
  description: The objects that were created or configured.
  type: list
  elements: str
  returned: always
"""

import hashlib
import json

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, cluster_args, no_cluster_yet

NAMESPACE = "kube-system"


def changes(out):
    """Return the objects that kubectl apply says it created or configured."""
    found = []
    for line in out.splitlines():
        words = line.replace("(server dry run)", "").split()
        if len(words) >= 2 and words[1] in ("created", "configured", "serverside-applied"):
            found.append(words[0])
    return found


def digest_object(name, digest):
    """Return the config map that keeps the digest."""
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"sha256": digest}, "metadata": {
        "name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "director"}}})


def same(kubectl, args, digest):
    """Say whether what was applied last is the same and still there."""
    rc, out, _ = kubectl.call("-n", NAMESPACE, "get", "configmap/" + args["digest_name"], "-o", "jsonpath={.data.sha256}")
    if rc != 0 or out.strip() != digest:
        return False
    if not args["present"]:
        return True
    rc, _, _ = kubectl.call("-n", args["present_namespace"], "get", "-o", "name", *args["present"])
    return rc == 0


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(cluster_args(300), **{
            "manifest": {"type": "str", "required": True},
            "digest_name": {"type": "str"},
            "present": {"type": "list", "elements": "str", "default": []},
            "present_namespace": {"type": "str", "default": "kube-system"},
        }),
        supports_check_mode=True)
    args = module.params
    if no_cluster_yet(module):
        module.exit_json(changed=True, objects=["everything"], msg="there is no cluster yet")
    kubectl = Kubectl.of(args)
    digest = hashlib.sha256(args["manifest"].encode("utf-8")).hexdigest()
    try:
        if args["digest_name"] and same(kubectl, args, digest):
            module.exit_json(changed=False, objects=[])
        # The manifests are the release's and our own; checking them costs the download of every API's schema.
        argv = ["apply", "--validate=false", "-f", "-"]
        if module.check_mode:
            argv.append("--dry-run=server")
        objects = changes(kubectl.do(*argv, stdin=args["manifest"], what="kubectl apply"))
        if args["digest_name"] and not module.check_mode:
            kubectl.do("apply", "--validate=false", "-f", "-", stdin=digest_object(args["digest_name"], digest), what="keeping the digest")
    except Failure as err:
        module.fail_json(**err.result())
    module.exit_json(changed=bool(objects), objects=objects)


if __name__ == "__main__":
    main()
