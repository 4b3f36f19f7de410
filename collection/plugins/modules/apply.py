#!/usr/bin/python
# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Store documents on a director
description:
  - Stores documents such as clusters, networks and providers, all or none.
  - Nothing happens to a cluster before a plan is made and started; see M(kaas.director.plan).
options:
  documents:
    description: The documents. Those that are named by others may be in any order.
    type: list
    elements: dict
  src:
    description: File with the documents in YAML, on the machine where the module runs.
    type: path
  state:
    description:
      - V(present) stores the documents.
      - V(absent) deletes those of the kinds and names. A cluster is deleted by a plan, and not by this.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: kaas.director.director
attributes:
  check_mode:
    support: full
    description: The director says what it would do, and checks the documents as if it did.
  diff_mode:
    support: full
    description: Shows the differences of each document.
"""

EXAMPLES = r"""
- name: Store a cluster
  kaas.director.apply:
    url: https://director.example.org
    token: "{{ director_token }}"
    src: models/demo.yaml
"""

RETURN = r"""
changes:
  description: What was done, or would be done, to each document.
  type: list
  elements: dict
  returned: success
  sample: [{kind: Cluster, name: demo, action: created}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kaas.director.plugins.module_utils.director import arguments, documents, main
from ansible_collections.kaas.director.plugins.module_utils.director_client import DirectorError


def present(module, api):
    applied = api.apply(documents(module), dry_run=module.check_mode)
    changes = applied["changes"] or []
    changed = [c for c in changes if c["action"] != "unchanged"]
    diff = [
        {"header": f"{c['kind']}/{c['name']}", "prepared": c.get("diff") or f"{c['action']}\n"} for c in changed
    ]
    return {"changed": bool(changed), "changes": changes, "diff": diff}


def absent(module, api):
    changes = []
    for document in reversed(module.params["documents"]):
        kind, name = document.get("kind", ""), (document.get("metadata") or {}).get("name", "")
        try:
            api.get_document(kind, name)
            if not module.check_mode:
                api.delete_document(kind, name)
            action = "deleted"
        except DirectorError as err:
            if err.kind != "not_found":
                raise
            action = "unchanged"
        changes.append({"kind": kind, "name": name, "action": action})
    return {"changed": any(c["action"] == "deleted" for c in changes), "changes": changes}


def run():
    module = AnsibleModule(
        argument_spec=arguments(
            documents=dict(type="list", elements="dict"),
            src=dict(type="path"),
            state=dict(type="str", choices=["present", "absent"], default="present"),
        ),
        mutually_exclusive=[("documents", "src")],
        required_one_of=[("documents", "src")],
        required_if=[("state", "absent", ("documents",))],
        supports_check_mode=True,
    )
    main(module, absent if module.params["state"] == "absent" else present)


if __name__ == "__main__":
    run()
