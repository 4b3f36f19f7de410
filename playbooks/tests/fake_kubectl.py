# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Stands for kubectl and the cluster behind it. Usage: fake_kubectl.py DIRECTORY ARGUMENTS...

DIRECTORY/cluster.json holds the objects by kind, and what was applied. Evictions respect the budgets'
disruptionsAllowed; a pod that is evicted is gone, or only marked when its node is in "dead". Every call is noted in
DIRECTORY/calls, evictions with their options.
"""
import fcntl
import json
import re
import sys


def main():
    directory, argv = sys.argv[1], sys.argv[2:]
    while argv[0] in ("--kubeconfig", "-n"):
        argv = argv[2:]
    with open(directory + "/cluster.json", "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        world = json.load(file)
        line, answer, error, code = argv, "", "", 0
        if argv[0] == "create":
            body = json.load(sys.stdin)
            dry = bool(body["deleteOptions"].get("dryRun"))
            line = ["evict", "dry" if dry else "real", body["metadata"]["name"]]
            error = evict(world, body, dry)
        elif argv[:2] == ["get", "--raw"]:
            kind = argv[2].split("?")[0].rsplit("/", 1)[1]
            answer = json.dumps({"gitVersion": "v1"} if kind == "version" else {"items": world.get(kind, [])})
        elif argv[0] == "get" and references(argv):
            answer, error = named(world, argv[1:])
        elif argv[0] == "get":
            answer = get(world, argv[1:])
        elif argv[0] == "apply":
            answer = apply(world, sys.stdin.read())
        elif argv[0] == "diff":
            answer = diff(world, sys.stdin.read())
            code = int(bool(answer))
        elif argv[0] == "exec":
            answer = "\n".join("ok " + question for question in argv[argv.index("all") + 1:])
        elif argv[0] == "patch":
            patch(world, argv[2], json.loads(argv[-1]))
        elif argv[:2] == ["delete", "namespace"]:
            world["namespaces"] = [item for item in world.get("namespaces", []) if item["metadata"]["name"] != argv[2]]
            world["pods"] = [pod for pod in world["pods"] if pod["metadata"]["namespace"] != argv[2]]
        elif argv[0] == "delete" and argv[1] != "node":
            world.get("applied", {}).pop("%s/%s" % (argv[1].rstrip("s") if argv[1] in world else argv[1], argv[2]),
                                         None)
            world[argv[1]] = [item for item in world.get(argv[1], []) if item["metadata"]["name"] != argv[2]]
        elif argv[0] == "delete":
            world["nodes"] = [node for node in world["nodes"] if node["metadata"]["name"] != argv[2]]
        with open(directory + "/calls", "a", encoding="utf-8") as calls:
            calls.write("kubectl %s\n" % " ".join(line))
        file.seek(0)
        file.truncate()
        json.dump(world, file)
    print(answer)
    if error:
        print("Error from server " + error, file=sys.stderr)
        code = 1
    sys.exit(code)


def objects(text):
    """Return kind, name and text of the objects of a manifest."""
    try:
        document = json.loads(text)
    except ValueError:
        for part in text.split("\n---\n"):
            kind, name = re.search(r"(?m)^kind: (\S+)", part), re.search(r"(?m)^  name: (\S+)", part)
            yield kind.group(1), name.group(1), part
        return
    for item in document["items"] if document["kind"] == "List" else [document]:
        yield item["kind"], item["metadata"]["name"], json.dumps(item)


def diff(world, text):
    """Say which objects of the manifest are not in the world as they stand there, in the words of diff -q."""
    spaces = [item["metadata"]["name"] for item in world.get("namespaces", [])]
    names = ["%s/%s" % (kind.lower(), name) for kind, name, part in objects(text)
             if not (kind == "Namespace" and name in spaces)
             and world.get("applied", {}).get("%s/%s" % (kind.lower(), name)) != part]
    return "\n".join("Files /tmp/LIVE/%s and /tmp/MERGED/%s differ" % (name, name) for name in names)


def apply(world, text):
    applied, lines = world.setdefault("applied", {}), []
    for kind, name, part in objects(text):
        key = "%s/%s" % (kind.lower(), name)
        lines.append("%s %s" % (key, "unchanged" if applied.get(key) == part and kind != "PodDisruptionBudget"
                                else "configured"))
        applied[key] = part
        if kind == "Namespace":
            world.setdefault("namespaces", []).append({"metadata": {"name": name}})
            applied.pop(key)  # it goes with all that is in it
        elif key == "daemonset/probe":
            applied.pop(key)
            world["pods"] = [pod for pod in world["pods"] if pod["metadata"]["namespace"] != "kaas-check"] + [{
                "metadata": {"name": "probe-" + node["metadata"]["name"], "namespace": "kaas-check"},
                "spec": {"nodeName": node["metadata"]["name"]},
                "status": {"podIP": "10.244.0.1", "conditions": [{"type": "Ready",
                                                                  "status": "True"}]}} for node in world["nodes"]]
    return "\n".join(lines)


def references(argv):
    """Return the words that are kind/name; a label may have a slash too."""
    return [word for at, word in enumerate(argv) if re.fullmatch("[a-z]+/[a-z0-9.-]+", word) and argv[at - 1] != "-l"]


def named(world, argv):
    """Answer for objects that are named as kind/name."""
    words = references(argv)
    if "name" in argv or any(word.startswith("jsonpath") for word in argv):
        missing = [word for word in words if word not in world.get("applied", {})]
        if missing:
            return "", "(NotFound): %s not found" % missing[0]
        return "\n".join(words) if "name" in argv else json.loads(world["applied"][words[0]])["data"]["sha256"], ""
    return json.dumps({"items": [{"kind": word.split("/")[0], "metadata": {"name": word.split("/")[1]},
                                  "status": {"desiredNumberScheduled": 1, "numberAvailable": 1, "availableReplicas": 1}}
                                 for word in words]}), ""


def get(world, argv):
    argv = [word for at, word in enumerate(argv) if word != "-n" and (at == 0 or argv[at - 1] != "-n")]
    words = [word for word in argv if not word.startswith("-") and word != "json"]
    if words[0] in ("node", "configmap", "daemonset", "deployment", "namespace"):
        kind = words[0] + "s"
        found = [item for item in world.get(kind, []) if item["metadata"]["name"] == words[1]]
        if "%s/%s" % (words[0], words[1]) in world.get("applied", {}):
            found.append({"metadata": {"name": words[1]}})
        return json.dumps(found[0]) if found else ""
    if len(words) > 1 and "%s/%s" % (words[0], words[1]) in world.get("applied", {}):
        return json.dumps({"metadata": {"name": words[1]}})
    if "--ignore-not-found" in argv:
        return ""
    items = world.get(words[0], [])
    for word in words:
        if word.startswith("spec.nodeName="):
            items = [item for item in items if item["spec"].get("nodeName") == word.split("=")[1]]
    return json.dumps({"items": items})


def patch(world, name, wanted):
    node = [item for item in world["nodes"] if item["metadata"]["name"] == name][0]
    for part, changes in wanted.items():
        if part == "metadata":
            part, changes = None, changes["annotations"]
        target = node["metadata"].setdefault("annotations", {}) if part is None else node.setdefault(part, {})
        for key, value in changes.items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value


def evict(world, body, dry):
    name = body["metadata"]["name"]
    pods = [pod for pod in world["pods"] if pod["metadata"]["name"] == name]
    if not pods:
        return '(NotFound): pods "%s" not found' % name
    if pods[0]["metadata"].get("forbidden"):
        return '(Forbidden): pods "%s" is forbidden: nobody may' % name
    for budget in world.get("poddisruptionbudgets", []):
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        if all(pods[0]["metadata"].get("labels", {}).get(key) == value for key, value in wanted):
            if budget["status"]["disruptionsAllowed"] < 1:
                budget["status"]["disruptionsAllowed"] += budget.get("heals", 0)
                return "(TooManyRequests): Cannot evict pod as it would violate the pod's disruption budget."
            if not dry:
                budget["status"]["disruptionsAllowed"] -= 1
    if not dry and pods[0]["spec"].get("nodeName") in world.get("dead", []):
        pods[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif not dry:
        world["pods"].remove(pods[0])
    return ""


main()
