# Copyright: the director's authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  url:
    description:
      - Address of the director, https://HOST[:PORT].
      - Without it, the environment variable E(DIRECTOR_URL) is taken.
    type: str
  token:
    description:
      - API token that the director is asked with.
      - Without it, the environment variable E(DIRECTOR_TOKEN) is taken.
    type: str
  ca_file:
    description:
      - File with the certificates in PEM that the director's certificate is trusted by.
      - Without it, the environment variable E(DIRECTOR_CA_FILE) is taken, and then the certificates of the system.
    type: path
  timeout:
    description: How many seconds one request may take.
    type: int
    default: 60
requirements:
  - Python 3.8 or later
author:
  - The director's authors (@director-kaas)
"""
