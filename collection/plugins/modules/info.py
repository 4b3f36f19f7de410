#!/usr/bin/python
# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: info
short_description: Ask a director what it has
description:
  - Returns clusters, nodes, plans, waits and counts, as the owner of the token sees them. It changes nothing.
options:
  gather:
    description: What to ask for.
    type: list
    elements: str
    choices: [clusters, nodes, plans, summary, waits]
    default: [summary]
  cluster:
    description: Only nodes, plans and waits of this cluster, and the cluster itself.
    type: str
extends_documentation_fragment: kaas.director.director
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: There is nothing to compare.
"""

EXAMPLES = r"""
- name: Look at the nodes of a cluster
  kaas.director.info:
    gather: [nodes]
    cluster: demo
  register: seen
"""

RETURN = r"""
clusters:
  description: The clusters.
  type: list
  elements: dict
  returned: when asked for
nodes:
  description: The nodes as they were seen last.
  type: list
  elements: dict
  returned: when asked for
plans:
  description: The plans, the newest first, without their steps.
  type: list
  elements: dict
  returned: when asked for
summary:
  description: Counts of clusters, nodes, plans and waits.
  type: dict
  returned: when asked for
waits:
  description: What plans wait for, the longest wait first.
  type: list
  elements: dict
  returned: when asked for
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kaas.director.plugins.module_utils.director import arguments, main


def every(ask):
    """All parts of a list."""
    out, rest = [], None
    while True:
        part = ask(rest)
        out += part["items"] or []
        rest = part.get("continue")
        if not rest:
            return out


def work(module, api):
    cluster = module.params["cluster"]
    out = {"changed": False}
    for what in module.params["gather"]:
        if what == "summary":
            out[what] = api.summary()
        elif what == "clusters":
            found = every(lambda rest: api.list_clusters(name_prefix=cluster, continue_=rest))
            out[what] = [c for c in found if not cluster or c["name"] == cluster]
        elif what == "nodes":
            out[what] = every(
                lambda rest: api.list_all_nodes(cluster=[cluster] if cluster else None, continue_=rest)
            )
        elif what == "plans":
            out[what] = every(lambda rest: api.list_plans(cluster=cluster, sort="-created_at", continue_=rest))
        else:
            out[what] = api.list_waits(cluster=cluster)["items"] or []
    return out


def run():
    module = AnsibleModule(
        argument_spec=arguments(
            gather=dict(
                type="list", elements="str", choices=["clusters", "nodes", "plans", "summary", "waits"],
                default=["summary"],
            ),
            cluster=dict(type="str"),
        ),
        supports_check_mode=True,
    )
    main(module, work)


if __name__ == "__main__":
    run()
