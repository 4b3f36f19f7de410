#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_apply
short_description: Applies manifests with kubectl on a master and says what changed
description:
  - Runs C(kubectl apply) with the manifests on stdin when C(kubectl diff) finds that the server would create or change
    something.
  - When O(digest_name) is set, a config map of that name keeps the SHA-256 of what was applied last. As long as it is
    the same and all objects of O(present) exist, nothing is sent, which saves a slow master most of the work. Otherwise
    everything is applied, and what C(kubectl apply) calls created or configured counts as changed.
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
    description: Asks the server what would differ; on a node that is no master yet everything counts as changed.
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
  description: The objects that were created or changed, as kubectl names them.
  type: list
  elements: str
  returned: always
"""

import hashlib
import json
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, cluster_args, no_cluster_yet

NAMESPACE = "kube-system"


def applied(kubectl, manifest):
    """Apply the manifest and return the objects that kubectl says it created or configured."""
    # The manifests are the release's and our own; checking them costs the download of every API's schema.
    out = kubectl.do("apply", "--validate=false", "-f", "-", stdin=manifest, what="kubectl apply")
    return [words[0] for words in map(str.split, out.splitlines()) if words[1:2] in (["created"], ["configured"])]


def differing(kubectl, manifest):
    """Return the objects that applying the manifest would create or change.

    kubectl apply cannot say it: it calls an object configured when the patch that it sends is not empty, and that of a
    disruption budget never is, since its selector is always replaced.
    """
    try:
        out = kubectl.do("diff", "-f", "-", stdin=manifest, what="kubectl diff", fine=(0, 1),
                         env={"KUBECTL_EXTERNAL_DIFF": "diff -N -q"})
    except Failure as err:
        return new_namespace(kubectl, manifest, err)
    lines = [line.split() for line in out.splitlines()]
    return [os.path.basename(words[1]) for words in lines if words[:1] == ["Files"] and words[-1:] == ["differ"]]


def new_namespace(kubectl, manifest, err):
    """Return the namespace that kubectl diff did not find if the manifest makes it, with what it is to hold; else raise
    the failure.

    The server cannot say what an object in a namespace that does not exist would become.
    """
    missing = re.search(r'namespaces "([^"]+)" not found', err.result().get("stderr", ""))
    if missing:
        made = kubectl.do("create", "--dry-run=client", "--validate=false", "-o", "name", "-f", "-", stdin=manifest,
                          what="kubectl create")
        if "namespace/" + missing.group(1) in made.split():
            return made.split()
    raise err


def digest_object(name, digest):
    """Return the config map that keeps the digest."""
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"sha256": digest}, "metadata": {
        "name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "director"}}})


def same(kubectl, args, digest):
    """Say whether what was applied last is the same and still there."""
    rc, out, _ = kubectl.call("-n", NAMESPACE, "get", "configmap/" + args["digest_name"], "-o",
                              "jsonpath={.data.sha256}")
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
        if args["digest_name"] and not module.check_mode:
            objects = applied(kubectl, args["manifest"])
            applied(kubectl, digest_object(args["digest_name"], digest))
        else:
            objects = differing(kubectl, args["manifest"])
            if objects and not module.check_mode:
                applied(kubectl, args["manifest"])
    except Failure as err:
        module.fail_json(**err.result())
    module.exit_json(changed=bool(objects), objects=objects)


if __name__ == "__main__":
    main()
