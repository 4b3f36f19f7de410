#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_fetch
short_description: Fetches programs over HTTPS and puts them in place whole
description:
  - A file whose SHA-256 is the wanted one is left alone, so nothing is fetched twice.
  - Otherwise it is fetched to a name beside its place, compared, and then takes the place in one step. A program that
    runs keeps its old file, and a run that is cut off leaves either the old file or the new one. What was fetched so
    far is kept, and the next run fetches the rest.
options:
  url:
    description: Where the files are, each below by its name.
    type: str
    required: true
  files:
    description: SHA-256 in hexadecimal by name.
    type: dict
    required: true
  dest:
    description: Directory that the files go to.
    type: path
    default: /usr/local/bin
  mode:
    description: Permissions.
    type: str
    default: "0755"
  ca:
    description: PEM of a CA that is trusted in addition to the system's.
    type: str
    default: ""
  authorization:
    description: Authorization header that is sent; empty for none.
    type: str
    default: ""
  timeout:
    description: Seconds after which it is given up.
    type: int
    default: 900
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Fetch kubeadm
  kaas_fetch:
    url: https://director.example:8443/artifacts/sha256-abc/bin
    files: {kubeadm: 7f5e745b2ce440c01538e403b1e82d6b628029e7376e08af0feb6304f1ecf3cb}
    ca: "{{ registry_ca }}"
"""

RETURN = r"""
fetched:
  description: Names of the files that were put in place, or would be.
  type: list
  elements: str
  returned: always
"""

import contextlib
import glob
import hashlib
import http.client
import os
import ssl
import stat
import time
import urllib.error
import urllib.request

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, clean

BLOCK = 1 << 20
PAUSE = 2.0
SILENCE = 60  # seconds without a byte after which a connection is given up


def digest(path):
    """Return the SHA-256 of a file, empty when there is none."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                found.update(block)
    except FileNotFoundError:
        return ""
    return found.hexdigest()


class Cut(Exception):
    """The way to the files failed: another attempt may succeed."""


@contextlib.contextmanager
def network():
    """Tell failures of the network from those of the node's own disk, which are of the same class."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as err:
        raise Cut(clean(str(err), 300)) from err


class Fetch:
    """Files from one place."""

    def __init__(self, args, check, clock=time.monotonic, sleep=time.sleep):
        self.args, self.check = args, check
        self.clock, self.sleep = clock, sleep
        self.deadline = clock() + args["timeout"]
        self.mode = int(args["mode"], 8)
        context = ssl.create_default_context()
        if args["ca"]:
            context.load_verify_locations(cadata=args["ca"])
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                                  urllib.request.HTTPSHandler(context=context))
        self.fetched = []

    def ensure(self, name, wanted):
        """Have one file in place."""
        path = os.path.join(self.args["dest"], name)
        if digest(path) == wanted:
            if stat.S_IMODE(os.stat(path).st_mode) != self.mode:
                self.fetched.append(name)
                if not self.check:
                    os.chmod(path, self.mode)
            return
        self.fetched.append(name)
        if self.check:
            return
        part = os.path.join(self.args["dest"], ".kaas-fetch-%s-%s" % (name, wanted[:16]))
        for stale in glob.glob(os.path.join(glob.escape(self.args["dest"]), ".kaas-fetch-%s-*" % glob.escape(name))):
            if stale != part:  # of an earlier release
                os.unlink(stale)
        try:
            self.download(name, part)
            have = digest(part)
            if have != wanted:
                os.unlink(part)
                raise Failure("%s is not what was expected: its SHA-256 is %s, not %s"
                              % (self.address(name), have, wanted),
                              "The file was changed on its way or is another one: compare it with where its SHA-256 is "
                              "from, such as the release's bundle")
            os.chmod(part, self.mode)
            os.replace(part, path)
        except OSError as err:
            raise Failure("%s cannot be written: %s" % (path, err.strerror or err),
                          "Look at its file system on the node: df, mount, lsattr") from err

    def address(self, name):
        """Return where a file is fetched from."""
        return "%s/%s" % (self.args["url"].rstrip("/"), name)

    def download(self, name, part):
        """Fetch a file, from where an earlier attempt has ended."""
        while True:
            try:
                return self.attempt(name, part)
            except urllib.error.HTTPError as err:
                err.close()
                if err.code == 416:  # more than there is: not our file
                    os.unlink(part)
                elif err.code < 500:
                    raise Failure("%s cannot be fetched: %s %s"
                                  % (self.address(name), err.code, clean(err.reason, 200)),
                                  "See whether the server still has this file, such as the director the "
                                  "release") from err
                why = "%s %s" % (err.code, clean(err.reason, 200))
            except Cut as err:
                why = str(err)
                if "CERTIFICATE_VERIFY_FAILED" in why:
                    raise Failure("%s shows a certificate that is not trusted: %s" % (self.address(name), why),
                                  "The CA has to be that of the server: registry_ca of the director, "
                                  "spec.agents.program.ca of a server with the program of Consul") from err
            if self.clock() >= self.deadline:
                raise Failure("%s cannot be fetched: not within %d s: %s"
                              % (self.address(name), self.args["timeout"], why),
                              "See whether the node reaches the server at this address")
            self.sleep(PAUSE)

    def attempt(self, name, part):
        """Fetch what is missing of a file once."""
        have = os.path.getsize(part) if os.path.exists(part) else 0
        request = urllib.request.Request(self.address(name), headers={"Range": "bytes=%d-" % have} if have else {})
        if self.args["authorization"]:
            # never sent to where it is redirected
            request.add_unredirected_header("Authorization", self.args["authorization"])
        with network():
            answer = self.opener.open(request, timeout=SILENCE)
        # Who does not know ranges answers 200 and sends everything.
        with answer, open(part, "ab" if have and answer.status == 206 else "wb") as file:
            length, got = answer.headers.get("Content-Length"), 0
            while True:
                with network():
                    block = answer.read(BLOCK)
                if not block:
                    break
                file.write(block)
                got += len(block)
                if self.clock() >= self.deadline:
                    raise Cut("it is too slow")
            file.flush()
            os.fsync(file.fileno())
        if length is not None and got < int(length):
            raise Cut("the connection ended after %d of %s bytes" % (got, length))


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "files": {"type": "dict", "required": True},
            "dest": {"type": "path", "default": "/usr/local/bin"},
            "mode": {"type": "str", "default": "0755"},
            "ca": {"type": "str", "default": ""},
            "authorization": {"type": "str", "default": "", "no_log": True},
            "timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True)
    files = module.params["files"]
    bad = sorted(name for name in files if not name or "/" in name or name.startswith("."))
    if bad:
        module.fail_json(msg="not a file name: %s" % ", ".join(bad))
    try:
        fetch = Fetch(module.params, module.check_mode)
    except (ssl.SSLError, ValueError) as err:
        module.fail_json(msg="ca is no certificate or mode is no number: %s" % err)
    try:
        for name in sorted(files):
            fetch.ensure(name, str(files[name]).lower())
    except Failure as err:
        module.fail_json(changed=bool(fetch.fetched), fetched=fetch.fetched, **err.result())
    except OSError as err:
        module.fail_json(msg="%s: %s" % (module.params["dest"], err), changed=bool(fetch.fetched),
                         fetched=fetch.fetched)
    module.exit_json(changed=bool(fetch.fetched), fetched=fetch.fetched)


if __name__ == "__main__":
    main()
