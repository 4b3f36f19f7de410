#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_files
short_description: Brings many small files to their wanted content in one task
description:
  - Does for a list what M(ansible.builtin.copy), M(ansible.builtin.blockinfile) and M(ansible.builtin.file) do for one
    path. A task costs seconds on a slow node, so a role that leaves ten files needs this instead of a loop.
  - Every file is replaced atomically. Missing parent directories are made with mode 0755.
  - Content is rendered on the controller with C(lookup('ansible.builtin.template', ...)).
options:
  files:
    description: What should be there. Entries are handled in order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: An absolute path.
        type: path
        required: true
      state:
        description:
          - C(file) has exactly C(content); C(block) keeps the rest of the file and holds the content between two marker
            lines; an empty content takes the lines away; C(directory) exists; C(absent) does not, with everything below
            it; C(pruned) is a directory without the directories that hold a file C(marker) and are not named in
            C(keep).
        type: str
        choices: [file, block, directory, absent, pruned]
        default: file
      content:
        description: The text, for C(file) and C(block).
        type: str
      mode:
        description: Permissions as a quoted octal number; 0644 for files and 0755 for directories when unset.
        type: str
      owner:
        description: Name of the owner; left as it is when unset.
        type: str
      unknown_owner:
        description: Whether an entry whose owner or group the node does not know is an error, or is left out.
        type: str
        choices: [fail, skip]
        default: fail
      group:
        description: Name of the group; left as it is when unset.
        type: str
      marker:
        description: The name in the marker lines of a C(block), or of the file that marks what C(pruned) takes away.
        type: str
        default: kaas
      keep:
        description: Names of directories that C(pruned) leaves.
        type: list
        elements: str
        default: []
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Write the trust of the registry
  kaas_files:
    files:
      - path: /etc/containerd/certs.d/registry.example:5000/ca.crt
        content: "{{ registry_ca }}"
      - path: /etc/hosts
        state: block
        content: "{{ lookup('ansible.builtin.template', 'hosts.j2') }}"
"""

RETURN = r"""
paths:
  description: The paths that were changed, or would be in check mode.
  type: list
  elements: str
  returned: always
"""

import grp
import os
import pwd
import shutil
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import write_atomically


def read(path):
    """Return the bytes of path, None when it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def with_block(before, content, marker):
    """Return before with content between the marker lines, in the place they have or at the end."""
    begin, end = "# BEGIN %s" % marker, "# END %s" % marker
    lines = before.splitlines()
    block = [begin] + content.strip("\n").splitlines() + [end] if content.strip() else []
    if begin in lines and end in lines[lines.index(begin):]:
        first = lines.index(begin)
        last = lines.index(end, first)
        lines[first:last + 1] = block
    else:
        lines += block
    return "".join(line + "\n" for line in lines)


def text(data):
    """Return data for a diff."""
    try:
        return (data or b"").decode("utf-8")
    except UnicodeDecodeError:
        return "(binary, %d bytes)\n" % len(data)


class Entry:
    """One entry of the list."""

    def __init__(self, wanted):
        self.path = wanted["path"]
        self.state = wanted["state"]
        self.content = wanted["content"]
        self.marker = wanted["marker"]
        self.keep = wanted["keep"]
        directory = self.state == "directory"
        self.mode = int(wanted["mode"] or ("0755" if directory else "0644"), 8)
        self.mode_given = wanted["mode"] is not None
        self.uid = pwd.getpwnam(wanted["owner"]).pw_uid if wanted["owner"] else -1
        self.gid = grp.getgrnam(wanted["group"]).gr_gid if wanted["group"] else -1

    def metadata_differs(self):
        """Say whether mode or owner of the existing path are not the wanted ones."""
        have = os.stat(self.path)
        keep_mode = self.state == "block" and not self.mode_given
        return ((not keep_mode and stat.S_IMODE(have.st_mode) != self.mode)
                or self.uid not in (-1, have.st_uid) or self.gid not in (-1, have.st_gid))

    def set_metadata(self):
        """Give the existing path the wanted mode and owner."""
        if not (self.state == "block" and not self.mode_given):
            os.chmod(self.path, self.mode)
        if self.uid != -1 or self.gid != -1:
            os.chown(self.path, self.uid, self.gid)

    def apply(self, act):
        """Bring the path to its state when act is set; return None when it was there, a diff otherwise."""
        if self.state == "absent":
            return self.remove(act)
        if self.state == "directory":
            return self.directory(act)
        if self.state == "pruned":
            return self.prune(act)
        return self.file(act)

    def remove(self, act):
        if not os.path.lexists(self.path):
            return None
        if act:
            if os.path.isdir(self.path) and not os.path.islink(self.path):
                shutil.rmtree(self.path)
            else:
                os.unlink(self.path)
        return {"before_header": self.path, "after_header": self.path, "before": "present\n", "after": "absent\n"}

    def prune(self, act):
        try:
            names = sorted(os.listdir(self.path))
        except FileNotFoundError:
            return None
        gone = [name for name in names
                if name not in self.keep and os.path.isfile(os.path.join(self.path, name, self.marker))
                and not os.path.islink(os.path.join(self.path, name))]
        for name in gone if act else []:
            directory = os.path.join(self.path, name)
            # The marker goes last: what is cut off in between is found again.
            for child in os.scandir(directory):
                if child.name == self.marker:
                    continue
                if child.is_dir(follow_symlinks=False):
                    shutil.rmtree(child.path)
                else:
                    os.unlink(child.path)
            shutil.rmtree(directory)
        if not gone:
            return None
        return {"before_header": self.path, "after_header": self.path, "before": "".join(name + "\n" for name in gone),
                "after": ""}

    def directory(self, act):
        there = os.path.isdir(self.path)
        if there and not self.metadata_differs():
            return None
        if act:
            os.makedirs(self.path, exist_ok=True)
            self.set_metadata()
        return {"before_header": self.path, "after_header": self.path,
                "before": "directory\n" if there else "absent\n", "after": "directory %04o\n" % self.mode}

    def file(self, act):
        before = read(self.path)
        if self.state == "block" and before is None and not self.content.strip():
            return None
        if self.state == "block":
            after = with_block(text(before), self.content, self.marker).encode("utf-8")
        else:
            after = self.content.encode("utf-8")
        metadata = before is not None and self.metadata_differs()
        if before == after and not metadata:
            return None
        if act:
            if before != after:
                keep = self.state == "block" and not self.mode_given and before is not None
                mode = stat.S_IMODE(os.stat(self.path).st_mode) if keep else self.mode
                # A link is written through: /etc/hosts may be one.
                write_atomically(os.path.realpath(self.path), after, mode)
            self.set_metadata()
        return {"before_header": self.path, "after_header": self.path, "before": text(before), "after": text(after)}


def main():
    """Run the module."""
    spec = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["file", "block", "directory", "absent", "pruned"], "default": "file"},
        "content": {"type": "str"},
        "mode": {"type": "str"},
        "owner": {"type": "str"},
        "unknown_owner": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
        "group": {"type": "str"},
        "marker": {"type": "str", "default": "kaas"},
        "keep": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(
        argument_spec={"files": {"type": "list", "elements": "dict", "required": True, "options": spec}},
        supports_check_mode=True)
    entries = []
    try:
        for wanted in module.params["files"]:
            try:
                entries.append(Entry(wanted))
            except KeyError:
                if wanted["unknown_owner"] == "fail":
                    raise
    except (KeyError, ValueError) as err:
        module.fail_json(msg="a file has a wrong mode or an unknown owner or group: %s" % err)
    for entry in entries:
        if not os.path.isabs(entry.path):
            module.fail_json(msg="%s is not an absolute path" % entry.path)
        if entry.state in ("file", "block") and entry.content is None:
            module.fail_json(msg="%s has no content" % entry.path)
    paths, diffs = [], []
    for entry in entries:
        try:
            diff = entry.apply(act=not module.check_mode)
        except OSError as err:
            module.fail_json(msg="%s: %s" % (entry.path, err.strerror or err), paths=paths, changed=bool(paths))
        if diff:
            paths.append(entry.path)
            diffs.append(diff)
    result = {"changed": bool(paths), "paths": paths}
    if module._diff:  # the one way Ansible offers to ask for diff mode
        result["diff"] = diffs
    module.exit_json(**result)


if __name__ == "__main__":
    main()
