# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Ends a run before the task that KAAS_CUT names by its number, as if the machine had lost its power, and counts tasks
for the next one."""
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: cut
    type: aggregate
    short_description: ends a run before a task
    description: [For tests.]
"""


class CallbackModule(CallbackBase):
    """Counts tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "cut"

    def __init__(self):
        super().__init__()
        self.count = 0

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.count += 1
        with open(os.environ["KAAS_COUNT"], "w", encoding="utf-8") as file:
            file.write(str(self.count))
        if self.count == int(os.environ.get("KAAS_CUT", "0")):
            os._exit(99)
