# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Stands for kubectl and the cluster behind it. Usage: fake_kubectl.py DIRECTORY ARGUMENTS...

DIRECTORY/cluster.json holds the objects by kind. Evictions respect the budgets' disruptionsAllowed; a pod that is evicted is gone, or only
marked when its node is in "dead". Every call is noted in DIRECTORY/calls, evictions with their options.
"""
import fcntl
import json
import sys


def main():
    directory, argv = sys.argv[1], sys.argv[2:]
    argv = argv[2:] if argv[0] == "--kubeconfig" else argv
    with open(directory + "/cluster.json", "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        world = json.load(file)
        line, answer, error = argv, "", ""
        if argv[0] == "create":
            body = json.load(sys.stdin)
            dry = bool(body["deleteOptions"].get("dryRun"))
            line = ["evict", "dry" if dry else "real", body["metadata"]["name"]]
            error = evict(world, body, dry)
        elif argv[0] == "get":
            answer = get(world, argv[1:])
        elif argv[0] == "patch":
            patch(world, argv[2], json.loads(argv[-1]))
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
        sys.exit(1)


def get(world, argv):
    words = [word for word in argv if not word.startswith("-") and word != "json"]
    if words[0] in ("node", "configmap", "daemonset", "deployment"):
        kind = words[0] + "s"
        found = [item for item in world.get(kind, []) if item["metadata"]["name"] == words[1]]
        return json.dumps(found[0]) if found else ""
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
