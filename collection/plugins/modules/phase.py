#!/usr/bin/python
# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: phase
short_description: Ask a director before and after work on a hypervisor host, and upgrade the director itself
description:
  - An outer plan that upgrades hypervisor hosts asks before it takes a host, and tells when the host is back.
  - The same task id with the same request is the same task. A task that is done stays as it is.
options:
  task_id:
    description: Id of the task in the outer plan.
    type: str
    required: true
  phase:
    description:
      - V(cluster) before all hosts, V(pre_node_lock) before one, V(post_node_unlock) after it, V(post_cluster) after
        all. V(director) upgrades the appliance of a director.
    type: str
    choices: [cluster, pre_node_lock, post_node_unlock, post_cluster, director]
    required: true
  cluster:
    description: For V(cluster) and V(post_cluster), the cluster.
    type: str
  host:
    description: For the phases of nodes, the hypervisor host with all nodes on it.
    type: str
  node:
    description: For the phases of nodes, this node alone.
    type: str
  provider:
    description: Whose host it is, where several providers have a host of the name.
    type: str
  install:
    description: For V(cluster), create the cluster if it is not installed.
    type: bool
    default: false
  host_keys:
    description: For V(post_node_unlock), the public SSH host keys of VMs that were recreated, by node.
    type: dict
  director:
    description: For V(director), the host name of the director to upgrade, where there are several.
    type: str
  src:
    description:
      - For V(director), the file director-upgrade.tar. It is sent if the task has not begun.
    type: path
  upload:
    description: For V(director), the SHA-256 of an archive that was sent before, instead of O(src).
    type: str
  drain:
    description: For V(director), how many seconds running steps of plans have to end.
    type: int
  within:
    description: For V(director), how many seconds the new version has to become healthy.
    type: int
  wait:
    description: Wait until the task is done, and fail if it is not.
    type: bool
    default: true
  wait_timeout:
    description: How many seconds to wait.
    type: int
    default: 7200
extends_documentation_fragment: kaas.director.director
attributes:
  check_mode:
    support: partial
    description: Says whether the task is known. What it would do is not looked at.
  diff_mode:
    support: none
    description: There is nothing to compare.
"""

EXAMPLES = r"""
- name: Take the nodes from a host
  kaas.director.phase:
    task_id: "upgrade-7-{{ inventory_hostname }}-lock"
    phase: pre_node_lock
    host: "{{ inventory_hostname }}"
  delegate_to: localhost

- name: Upgrade the director
  kaas.director.phase:
    task_id: upgrade-7-director
    phase: director
    src: director-upgrade.tar
  delegate_to: localhost
"""

RETURN = r"""
task:
  description: The task.
  type: dict
  returned: when the director knows the task
  sample: {task_id: upgrade-7-host1-lock, phase: pre_node_lock, state: done}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kaas.director.plugins.module_utils.director import arguments, main, until
from ansible_collections.kaas.director.plugins.module_utils.director_client import DirectorError, file_sha256

OWN = ("task_id", "phase", "cluster", "host", "node", "provider", "host_keys", "director")


def known(api, task_id):
    try:
        return api.get_phase(task_id)
    except DirectorError as err:
        if err.kind != "not_found":
            raise
        return None


def upgrade(module, api, begun):
    """What a director is upgraded with. The archive is sent if the task has not begun."""
    p = module.params
    upload = p["upload"]
    if p["src"]:
        try:
            upload = file_sha256(p["src"])
            if not begun:
                api.send_file(p["src"], "release", upload)
        except OSError as err:
            module.fail_json(msg=f"{p['src']} cannot be read: {err}")
    return {"upload": upload, **{k: p[k] for k in ("drain", "within") if p[k] is not None}}


def work(module, api):
    p = module.params
    before = known(api, p["task_id"])
    changed = before is None or before["state"] in ("parked", "failed")
    if module.check_mode:
        return {"changed": changed, **({"task": before} if before else {})}
    request = {k: p[k] for k in OWN if p[k] is not None}
    if p["install"]:
        request["install"] = True
    if p["phase"] == "director":
        request["upgrade"] = upgrade(module, api, before is not None and before["state"] != "waiting")
    if p["wait"] and before is not None:  # a director that restarts answers later
        task = until(lambda: api.ask_phase(request), lambda _: True, p["wait_timeout"], f"task {p['task_id']}")
    else:
        task = api.ask_phase(request)
    if p["wait"]:
        task = until(
            lambda: api.get_phase(p["task_id"]), lambda now: now["state"] in ("done", "parked", "failed"),
            p["wait_timeout"], f"task {p['task_id']}",
        )
        if task["state"] != "done":
            module.fail_json(
                msg=f"task {p['task_id']} is {task['state']}: {task.get('message', '')}", hint=task.get("hint", ""),
                task=task,
            )
    return {"changed": changed, "task": task}


def run():
    module = AnsibleModule(
        argument_spec=arguments(
            task_id=dict(type="str", required=True),
            phase=dict(
                type="str", required=True,
                choices=["cluster", "pre_node_lock", "post_node_unlock", "post_cluster", "director"],
            ),
            cluster=dict(type="str"),
            host=dict(type="str"),
            node=dict(type="str"),
            provider=dict(type="str"),
            install=dict(type="bool", default=False),
            host_keys=dict(type="dict", no_log=False),
            director=dict(type="str"),
            src=dict(type="path"),
            upload=dict(type="str"),
            drain=dict(type="int"),
            within=dict(type="int"),
            wait=dict(type="bool", default=True),
            wait_timeout=dict(type="int", default=7200),
        ),
        mutually_exclusive=[("cluster", "host", "node"), ("src", "upload"), ("cluster", "src"), ("host", "src")],
        required_one_of=[("cluster", "host", "node", "src", "upload")],
        supports_check_mode=True,
    )
    main(module, work)


if __name__ == "__main__":
    run()
