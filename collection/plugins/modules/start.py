#!/usr/bin/python
# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: start
short_description: Start a plan of a director, or wait for one
description:
  - Starts a plan that waits to be started. A plan that runs or is done stays as it is.
  - With O(wait), the module ends when the plan moves no further by itself, and fails unless it has ended well.
options:
  plan:
    description: Id of the plan.
    type: str
    required: true
  hash:
    description:
      - Hash of the plan that was looked at. The director refuses another one.
      - Without it, the plan is started as it is.
    type: str
  approve:
    description: Agree to the plan before, if it needs an agreement. Not everyone may agree to a plan of their own.
    type: bool
    default: false
  wait:
    description: Wait until the plan moves no further by itself.
    type: bool
    default: false
  wait_timeout:
    description: How many seconds to wait.
    type: int
    default: 7200
extends_documentation_fragment: kaas.director.director
attributes:
  check_mode:
    support: full
    description: Says whether the plan would be started.
  diff_mode:
    support: none
    description: There is nothing to compare.
"""

EXAMPLES = r"""
- name: Start a plan and wait for its end
  kaas.director.start:
    plan: 1125-184502-a1b2c3
    wait: true
"""

RETURN = r"""
plan:
  description: The plan without its steps.
  type: dict
  returned: success
  sample: {id: 1125-184502-a1b2c3, operation: cluster.create, status: done, steps_total: 41, steps_done: 41}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kaas.director.plugins.module_utils.director import (
    arguments,
    brief,
    ended,
    intention,
    main,
    until,
)
from ansible_collections.kaas.director.plugins.module_utils.director_client import STILL


def work(module, api):
    p = module.params
    plan = api.get_plan(p["plan"], steps=False)
    changed = plan["status"] in ("planned", "approved")
    if p["hash"] and p["hash"] != plan["hash"]:
        module.fail_json(msg=f"plan {p['plan']} has the hash {plan['hash']}, and not {p['hash']}")
    if module.check_mode:
        return {"changed": changed, "plan": brief(plan)}
    if changed:
        if p["approve"] and plan["status"] == "planned" and plan["approvals"]:
            api.approve_plan(p["plan"], {"hash": plan["hash"]}, idempotency_key=intention())
        plan = api.start_plan(p["plan"], {"hash": plan["hash"]}, idempotency_key=intention())
    if p["wait"]:
        plan = until(
            lambda: api.get_plan(p["plan"], steps=False), lambda now: now["status"] in STILL, p["wait_timeout"],
            f"plan {p['plan']}",
        )
        ended(module, plan)
    return {"changed": changed, "plan": brief(plan)}


def run():
    module = AnsibleModule(
        argument_spec=arguments(
            plan=dict(type="str", required=True),
            hash=dict(type="str"),
            approve=dict(type="bool", default=False),
            wait=dict(type="bool", default=False),
            wait_timeout=dict(type="int", default=7200),
        ),
        supports_check_mode=True,
    )
    main(module, work)


if __name__ == "__main__":
    run()
