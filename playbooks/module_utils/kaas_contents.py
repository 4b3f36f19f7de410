# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""What etcd has, as the manifest of a backup tells it."""
from __future__ import annotations

PREFIX = "/registry/"
# These end by themselves: what a backup had of them says nothing later.
PASSING = ("events", "masterleases")
NAMED = {"namespaces": "namespaces", "minions": "nodes", "apiextensions.k8s.io/customresourcedefinitions": "crds"}
# Of a kind with more objects the names are left out of a manifest.
MOST = 2000


def resource(key):
    """Return the resource of a key below /registry/ and the rest of the key. Groups have a dot, and services two
    parts."""
    first, _, rest = key[len(PREFIX):].partition("/")
    if "." in first or first == "services":
        second, _, rest = rest.partition("/")
        first = "%s/%s" % (first, second)
    return first, rest


def contents(keys):
    """Return the numbers of keys by resource, and the names of what a cluster cannot do without."""
    counts, names = {}, {name: [] for name in NAMED.values()}
    for key in keys:
        if not key.startswith(PREFIX):
            continue
        kind, rest = resource(key)
        if kind in PASSING or not rest:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        if kind in NAMED:
            names[NAMED[kind]].append(rest)
    found = {"resources": counts}
    found.update({name: sorted(of) for name, of in names.items() if 0 < len(of) <= MOST})
    return found
