#!/usr/bin/python
# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Make a plan of a cluster on a director
description:
  - Freezes the plan that brings a cluster to its document, or that works on some of its nodes.
  - Nothing happens to the cluster before the plan is started; see M(kaas.director.start).
  - A cluster that is as its document says gets no plan.
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  operation:
    description:
      - What the plan does, such as V(cluster.delete), V(cluster.rotate_certs) or V(node.drain).
      - Without it, the director compares the cluster with its document.
    type: str
  nodes:
    description: Names of the nodes that the operation is about.
    type: list
    elements: str
  request:
    description: Further fields of the API's PlanRequest, such as C(keep_vm).
    type: dict
extends_documentation_fragment: kaas.director.director
attributes:
  check_mode:
    support: none
    description: The module is skipped. A plan changes nothing before it is started.
  diff_mode:
    support: none
    description: The summary of the plan says what it does.
"""

EXAMPLES = r"""
- name: Make a plan
  kaas.director.plan:
    cluster: demo
  register: made

- name: Start it, if there is something to do
  kaas.director.start:
    plan: "{{ made.plan.id }}"
    hash: "{{ made.plan.hash }}"
    wait: true
  when: made is changed
"""

RETURN = r"""
plan:
  description: The plan without its steps. Absent if nothing is to be done.
  type: dict
  returned: when there is something to do
  sample: {id: 1125-184502-a1b2c3, operation: cluster.create, status: planned, steps_total: 41}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kaas.director.plugins.module_utils.director import arguments, brief, intention, main


def work(module, api):
    p = module.params
    request = dict(p["request"] or {})
    if p["operation"]:
        request["operation"] = p["operation"]
    if p["nodes"]:
        request["nodes"] = p["nodes"]
    plan = api.make_plan(p["cluster"], request, idempotency_key=intention())
    if plan["steps_total"] == 0:
        return {"changed": False}
    return {"changed": True, "plan": brief(plan)}


def run():
    module = AnsibleModule(
        argument_spec=arguments(
            cluster=dict(type="str", required=True),
            operation=dict(type="str"),
            nodes=dict(type="list", elements="str"),
            request=dict(type="dict"),
        ),
        supports_check_mode=False,
    )
    main(module, work)


if __name__ == "__main__":
    run()
