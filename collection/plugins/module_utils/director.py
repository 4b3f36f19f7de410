# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

"""What the modules have in common."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kaas.director.plugins.module_utils.director_client import Client, DirectorError


def arguments(**own: Any) -> dict[str, Any]:
    """The argument spec of a module: its own options, and those that lead to the director."""
    return dict(
        url=dict(type="str"),
        token=dict(type="str", no_log=True),
        ca_file=dict(type="path"),
        timeout=dict(type="int", default=60),
        **own,
    )


def client(module: AnsibleModule) -> Client:
    """The client that the options of the module lead to."""
    option = {
        name: module.params[name] or os.environ.get("DIRECTOR_" + name.upper(), "")
        for name in ("url", "token", "ca_file")
    }
    for name in ("url", "token"):
        if not option[name]:
            module.fail_json(msg=f"{name} is missing: set the option, or DIRECTOR_{name.upper()} in the environment")
    module.no_log_values.add(option["token"])
    try:
        return Client(option["url"], option["token"], option["ca_file"] or None, module.params["timeout"])
    except (OSError, ValueError) as err:
        module.fail_json(msg=str(err))


def main(module: AnsibleModule, work: Callable[[AnsibleModule, Client], dict[str, Any]]) -> None:
    """Run a module. What the director refuses fails it, with the kind of the problem and what to do next."""
    try:
        module.exit_json(**work(module, client(module)))
    except DirectorError as err:
        module.fail_json(msg=str(err), kind=err.kind, hint=err.hint, errors=err.errors)
    except TimeoutError as err:
        module.fail_json(msg=str(err), kind="unavailable")


def intention() -> str:
    """A key under which a request is done once, also if its answer is lost."""
    return uuid.uuid4().hex


def brief(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan without its steps, which may be thousands."""
    return {k: v for k, v in plan.items() if k not in ("steps", "models", "machines", "windows")}


def ended(module: AnsibleModule, plan: dict[str, Any]) -> None:
    """Fail the module unless the plan has ended well."""
    if plan["status"] != "done":
        module.fail_json(
            msg=f"plan {plan['id']} is {plan['status']}: {plan.get('message', '')}", hint=plan.get("hint", ""),
            plan=brief(plan),
        )


def until(ask: Callable[[], Any], enough: Callable[[Any], bool], seconds: float, what: str) -> Any:
    """Ask until there is enough. A director that does not answer for a while is asked again."""
    end = time.monotonic() + seconds
    while True:
        try:
            answer = ask()
            if enough(answer):
                return answer
        except DirectorError as err:
            if err.kind not in ("unavailable", "exhausted"):
                raise
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not end within {seconds:g} s")
        time.sleep(1)


def documents(module: AnsibleModule) -> str:
    """The documents that the options say, as a text for the director."""
    if module.params["src"]:
        try:
            with open(module.params["src"], encoding="utf-8") as f:
                return f.read()
        except (OSError, ValueError) as err:
            module.fail_json(msg=f"{module.params['src']} cannot be read: {err}")
    # JSON is YAML: every document is one of the stream.
    return "\n---\n".join(json.dumps(d) for d in module.params["documents"])
