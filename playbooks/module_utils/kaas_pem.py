# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Certificates in files, and what an API server says of itself: shared by the modules that look at them."""
from __future__ import annotations

import base64
import binascii
import re
import tempfile

from ansible.module_utils.kaas import Failure, clean, run

BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
EMBEDDED = re.compile(r"^\s*client-certificate-data:\s*(\S+)\s*$", re.MULTILINE)
SHOWN = 10  # how many names a message has


def text_of(path):
    """Return a file's text, empty when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def pem_of(path):
    """Return the first certificate of a file or of a kubeconfig in PEM, empty when there is none."""
    text = text_of(path)
    if path.endswith(".conf"):
        found = EMBEDDED.search(text)
        try:
            text = base64.b64decode(found.group(1)).decode("utf-8", "replace") if found else ""
        except binascii.Error:
            text = ""
    found = BLOCK.search(text)
    return found.group(0) if found else ""


def signed_by(openssl, authorities, pem):
    """Say whether one of the authorities in a PEM text signed the certificate, whatever its dates."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
        file.write(authorities)
        file.flush()
        argv = [openssl, "verify", "-no_check_time", "-partial_chain", "-no-CApath", "-no-CAstore", "-CAfile",
                file.name]
        return run(argv, stdin=pem, timeout=60)[0] == 0


def some(names):
    """Return the names for a message."""
    return ", ".join(sorted(names)[:SHOWN]) + (" and %d more" % (len(names) - SHOWN) if len(names) > SHOWN else "")


class OwnServer:
    """The API server of this master, asked once and past every balancer."""

    def __init__(self, kubectl, kubeconfig, server):
        self.argv, self.server = [kubectl, "--kubeconfig=" + kubeconfig, "--server=" + server,
                                  "--request-timeout=30s"], server

    def ask(self, *argv, stdin=None):
        """Return (what it says, why it does not answer): one of both is empty."""
        rc, out, err = run(self.argv + list(argv), stdin=stdin, timeout=120)
        return (out, "") if rc == 0 else ("", clean(err, 300) or "no answer")

    def answer(self, *argv, stdin=None):
        """Return what it says, and fail if it does not answer."""
        out, err = self.ask(*argv, stdin=stdin)
        if err:
            raise Failure("the API server at %s does not answer as it should: %s" % (self.server, err),
                          "Look at `crictl ps -a` on the master")
        return out
