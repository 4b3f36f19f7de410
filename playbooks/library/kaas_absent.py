#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_absent
short_description: Deletes objects of the cluster with kubectl on a master
description:
  - Deletes each object of O(objects), in their order, and every object of O(selected). What is not there is left alone.
  - A call returns when the object is gone with what belongs to it.
  - While the API server cannot be reached the call is repeated until O(timeout).
options:
  objects:
    description: Objects by name.
    type: list
    elements: dict
    default: []
    suboptions:
      kind:
        description: The kind, as kubectl takes it.
        type: str
        required: true
      name:
        description: The name.
        type: str
        required: true
      namespace:
        description: The namespace; empty for an object that is in none.
        type: str
        default: ""
  selected:
    description: Objects of all namespaces by their labels or names.
    type: list
    elements: dict
    default: []
    suboptions:
      kind:
        description: The kind, in plural, as kubectl takes it.
        type: str
        required: true
      labels:
        description: The label selector.
        type: str
        default: ""
      name:
        description: The name that the objects have.
        type: str
        default: ""
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
    description: Says what would be deleted.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Remove a program
  kaas_absent:
    objects: [{kind: deployment, name: web, namespace: shop}]
    selected: [{kind: services, labels: app.kubernetes.io/name=web}]
"""

RETURN = r"""
deleted:
  description: The objects that were deleted, as kind/namespace/name.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, cluster_args, no_cluster_yet


def there(kubectl, objects, selected):
    """Return kind, namespace and name of the objects that exist."""
    found = [(want["kind"], want["namespace"], want["name"]) for want in objects
             if kubectl.find(want["kind"], want["name"], want["namespace"])]
    for want in selected:
        if not want["labels"] and not want["name"]:
            raise Failure("an entry of selected names neither labels nor a name: it would delete everything of the "
                          "kind")
        which = ["-l", want["labels"]] if want["labels"] else []
        which += ["--field-selector", "metadata.name=" + want["name"]] if want["name"] else []
        for item in kubectl.get(want["kind"], "--all-namespaces", *which)["items"]:
            found.append((want["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    return found


def delete(kubectl, kind, namespace, name):
    """Delete an object, and wait until it is gone with its pods."""
    where = ["-n", namespace] if namespace else []
    kubectl.do("delete", kind, name, "--ignore-not-found", "--cascade=foreground", "--wait=true", *where)


def main():
    """Run the module."""
    one = {"kind": {"type": "str", "required": True}, "name": {"type": "str", "required": True},
           "namespace": {"type": "str", "default": ""}}
    some = {"kind": {"type": "str", "required": True}, "labels": {"type": "str", "default": ""},
            "name": {"type": "str", "default": ""}}
    module = AnsibleModule(
        argument_spec=dict(cluster_args(300), **{
            "objects": {"type": "list", "elements": "dict", "default": [], "options": one},
            "selected": {"type": "list", "elements": "dict", "default": [], "options": some},
        }),
        supports_check_mode=True)
    args = module.params
    if no_cluster_yet(module):
        module.exit_json(changed=False, deleted=[], msg="there is no cluster")
    kubectl = Kubectl.of(args)
    try:
        found = there(kubectl, args["objects"], args["selected"])
        if not module.check_mode:
            for what in found:
                delete(kubectl, *what)
    except Failure as err:
        module.fail_json(**err.result())
    module.exit_json(changed=bool(found), deleted=["/".join(what) for what in found])


if __name__ == "__main__":
    main()
