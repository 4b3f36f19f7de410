# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""What modules share that take a node out of work: its pods, which of them have to leave, and what keeps them."""
from __future__ import annotations

from ansible.module_utils.kaas import Failure

# Who cordoned a node: a drain that is cut off leaves it, so that the next one knows that it may uncordon the node when
# it fails.
CORDONED_BY = "director.kaas/cordoned-by"
MIRROR = "kubernetes.io/config.mirror"


class Pod:
    """A pod on a node."""

    def __init__(self, document):
        meta = document["metadata"]
        self.document = document
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta.get("uid", "")
        self.labels = meta.get("labels") or {}
        self.terminating = bool(meta.get("deletionTimestamp"))
        self.finished = document.get("status", {}).get("phase") in ("Succeeded", "Failed")
        self.mirror = MIRROR in (meta.get("annotations") or {})
        owners = [owner for owner in meta.get("ownerReferences") or [] if owner.get("controller")]
        self.controller = owners[0]["kind"] if owners else ""

    def __str__(self):
        return "%s/%s" % (self.namespace, self.name)

    @property
    def stays(self):
        """Say whether the pod belongs to the node and is left where it is."""
        return self.mirror or self.controller == "DaemonSet"

    @property
    def local_data(self):
        """Return the names of the volumes whose content is lost with the pod."""
        volumes = self.document.get("spec", {}).get("volumes") or []
        return [] if self.finished else [volume["name"] for volume in volumes if "emptyDir" in volume]

    @property
    def unmanaged(self):
        """Say whether nothing would recreate the pod."""
        return not self.controller and not self.finished


def node_or_fail(kubectl, name):
    """Return the node; raise Failure when the cluster has none of that name."""
    node = kubectl.find("node", name)
    if node is None:
        raise Failure("node %s is not in the cluster" % name,
                      "It was deleted or has never joined: look at `kubectl get nodes`")
    return node


def leaving(kubectl, name):
    """Return the pods of the node that have to leave it."""
    found = kubectl.get("pods", "--all-namespaces", "--field-selector", "spec.nodeName=" + name)
    return sorted((pod for pod in map(Pod, found.get("items", [])) if not pod.stays), key=str)


def cordoned(node):
    """Say whether no new pods come to the node."""
    return bool(node.get("spec", {}).get("unschedulable"))


def selects(selector, labels):
    """Say whether a label selector selects; an empty one selects everything, none selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or []:
        has, within = term["key"] in labels, labels.get(term["key"]) in (term.get("values") or [])
        verdict = {"In": has and within, "NotIn": not (has and within), "Exists": has, "DoesNotExist": not has}
        if not verdict.get(term["operator"], False):
            return False
    return True


class Budget:
    """A disruption budget."""

    def __init__(self, document):
        meta, status = document["metadata"], document.get("status") or {}
        self.namespace, self.name = meta["namespace"], meta["name"]
        self.selector = (document.get("spec") or {}).get("selector")
        self.allowed = status.get("disruptionsAllowed", 0)
        self.healthy, self.needed = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        self.expected = status.get("expectedPods", 0)

    def __str__(self):
        return "%s/%s" % (self.namespace, self.name)

    def covers(self, pod):
        """Say whether the pod counts in this budget."""
        return pod.namespace == self.namespace and selects(self.selector, pod.labels)

    @property
    def never(self):
        """Say whether it allows nothing even when all its pods are healthy."""
        return self.allowed == 0 and self.expected > 0 and self.needed >= self.expected

    def reason(self):
        """Return for people why a pod has to stay."""
        return "disruption budget %s allows %d disruptions: %d of its %d pods have to be healthy, %d are" % (
            self, self.allowed, self.needed, self.expected, self.healthy)


def budgets(kubectl):
    """Return all disruption budgets."""
    return [Budget(item) for item in kubectl.get("poddisruptionbudgets", "--all-namespaces").get("items", [])]
