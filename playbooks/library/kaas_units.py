#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_units
short_description: Has systemd units enabled, running, and running with their present configuration
description:
  - Handles a list of units in one task.
  - A unit that became active before the newest of its O(units[].reads) files was written is restarted, or reloaded when
    it is of O(units[].reload). A unit whose own file has changed is read again before. Unlike a handler this also
    happens when the run that wrote the file was cut off before it could notify anything.
options:
  units:
    description: The units.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the unit with its suffix, such as containerd.service.
        type: str
        required: true
      enabled:
        description: Whether it starts at boot.
        type: bool
        default: true
      reads:
        description: Files that it reads when it starts.
        type: list
        elements: path
        default: []
      reload:
        description: Whether it is told to read the files again instead of being restarted.
        type: bool
        default: false
      running:
        description: Whether it runs. One that does not is not enabled either, and need not be there.
        type: bool
        default: true
      written:
        description: Whether a task before this one writes the unit's file. In check mode the unit need not be there
          then.
        type: bool
        default: false
      signal:
        description: Signal by which a unit that should not run is told to end by itself, before it is stopped after
          half a minute.
        type: str
  systemctl:
    description: The program.
    type: str
    default: systemctl
  timeout:
    description: Seconds after which a start or restart is given up.
    type: int
    default: 180
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Have containerd run with its configuration
  kaas_units:
    units:
      - name: containerd.service
        reads: [/etc/containerd/config.toml]
"""

RETURN = r"""
did:
  description: What was done, such as "restart containerd.service".
  type: list
  elements: str
  returned: always
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, clean, run

PROPERTIES = ["Id", "LoadState", "ActiveState", "UnitFileState", "ActiveEnterTimestampMonotonic",
              "StateChangeTimestampMonotonic", "NeedDaemonReload"]
RUNS = ("active", "activating", "reloading")
PATIENCE = 30  # seconds that a unit has to end by itself


class Units:
    """systemd through systemctl."""

    def __init__(self, args, check):
        self.args, self.check, self.did = args, check, []

    def call(self, *argv):
        """Run systemctl; raise Failure when it fails."""
        rc, out, err = run([self.args["systemctl"]] + list(argv), timeout=self.args["timeout"])
        if rc != 0:
            raise Failure("systemctl %s failed: %s" % (" ".join(argv), clean(err or out, 800)),
                          "Look at `journalctl -u %s`" % argv[-1], rc=rc)
        return out

    def show(self, name):
        """Return the unit's properties."""
        out = self.call("show", "--property=" + ",".join(PROPERTIES), name)
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def act(self, verb, name):
        """Do something and note it."""
        self.did.append("%s %s" % (verb, name))
        if not self.check:
            self.call(verb, name)

    def leave(self, name, signal):
        """Give a unit the time to end by itself."""
        if not signal or self.check:
            return
        self.call("kill", "--signal=" + signal, name)
        deadline = time.monotonic() + PATIENCE
        while self.show(name).get("ActiveState") in RUNS + ("deactivating",) and time.monotonic() < deadline:
            time.sleep(0.5)

    def ensure(self, unit):
        """Bring one unit to its state."""
        name = unit["name"]
        has = self.show(name)
        if not unit["running"]:
            if has.get("UnitFileState") in ("enabled", "enabled-runtime"):
                self.act("disable", name)
            if has.get("ActiveState") in RUNS:
                self.leave(name, unit["signal"])
                self.act("stop", name)
            return
        if has.get("LoadState") != "loaded":
            if self.check and unit["written"]:
                self.act("start", name)
                return
            raise Failure("unit %s is not there (%s)" % (name, has.get("LoadState")), "The node image has to carry it")
        if unit["enabled"] and has.get("UnitFileState") not in ("enabled", "enabled-runtime", "static", "alias",
                                                                "indirect", "generated"):
            self.act("enable", name)
        if has.get("NeedDaemonReload") == "yes":
            self.did.append("daemon-reload")
            if not self.check:
                self.call("daemon-reload")
        if has.get("ActiveState") not in RUNS:
            self.act("start", name)
        # A reload leaves the time at which the unit became active as it was, and changes the time of its last change of
        # state.
        elif older(has, unit["reads"], "StateChange" if unit["reload"] else "ActiveEnter"):
            self.act("reload" if unit["reload"] else "restart", name)


def older(has, paths, what):
    """Say whether what happened to the unit was before one of the files was written."""
    try:
        since = int(has.get(what + "TimestampMonotonic") or 0) / 1e6
    except ValueError:
        return False
    # The file's change time, not its modification time, which copies may set back.
    now, mono = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    # That of a link counts, too: it may lead to an older file now.
    return any(max(os.stat(path).st_ctime, os.lstat(path).st_ctime) - now + mono > since for path in paths
               if os.path.exists(path))


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "dict", "required": True, "options": {
                "name": {"type": "str", "required": True},
                "enabled": {"type": "bool", "default": True},
                "reads": {"type": "list", "elements": "path", "default": []},
                "reload": {"type": "bool", "default": False},
                "running": {"type": "bool", "default": True},
                "written": {"type": "bool", "default": False},
                "signal": {"type": "str"},
            }},
            "systemctl": {"type": "str", "default": "systemctl"},
            "timeout": {"type": "int", "default": 180},
        },
        supports_check_mode=True)
    units = Units(module.params, module.check_mode)
    try:
        for unit in module.params["units"]:
            units.ensure(unit)
    except Failure as err:
        module.fail_json(changed=bool(units.did), did=units.did, **err.result())
    module.exit_json(changed=bool(units.did), did=units.did)


if __name__ == "__main__":
    main()
