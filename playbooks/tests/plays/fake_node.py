# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Stands for kubeadm, kubelet and systemctl of a node in the sandbox. Usage: fake_node.py WORLD PROGRAM VERSION
ARGUMENTS..."""
import glob
import json
import os
import re
import shutil
import sys
import time

WORLD, PROGRAM, VERSION, ARGS = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
KUBERNETES = "/etc/kubernetes"
COMPONENTS = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"]


def load():
    with open(WORLD + "/cluster.json", encoding="utf-8") as file:
        return json.load(file)


def store(world):
    with open(WORLD + "/cluster.json", "w", encoding="utf-8") as file:
        json.dump(world, file)


def note(text):
    with open(WORLD + "/calls", "a", encoding="utf-8") as file:
        file.write(text + "\n")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def etcd_tag(world):
    return re.search(r"etcd:\n(?:  .*\n)*?    imageTag: \"?([^\s\"]+)",
                     world["configmaps"][0]["data"]["ClusterConfiguration"]).group(1)


def static_pods(world, name, version):
    world["pods"] = [pod for pod in world["pods"]
                     if not (pod["spec"]["nodeName"] == name and pod["metadata"]["name"].startswith(tuple(COMPONENTS)))]
    for component in COMPONENTS:
        image = "reg/kaas/%s:%s" % (component, etcd_tag(world) if component == "etcd" else version)
        write("%s/manifests/%s.yaml" % (KUBERNETES, component), "    image: %s\n" % image)
        world["pods"].append({
            "metadata": {"name": "%s-%s" % (component, name), "namespace": "kube-system",
                         "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": name, "containers": [{"image": image}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})


def kubeadm():
    world = load()
    note("kubeadm " + " ".join(word for word in ARGS if not word.startswith("/")))
    config = ARGS[ARGS.index("--config") + 1] if "--config" in ARGS else ""
    document = world.get("configmaps", [{}])[0].get("data", {})
    if "upload-config" in ARGS:
        # As kubeadm does, whatever its kubeconfig says: it asks the API server of the configuration's own address.
        address = re.search(r"advertiseAddress: \"?([^\s\"]+)", read(config)).group(1)
        if not any("https://%s:2380" % address in member["peerURLs"] and not member.get("down")
                   for member in world["members"]):
            sys.exit("no API server listens on %s" % address)
        document["ClusterConfiguration"] = [part for part in read(config).split("\n---\n")
                                            if "kind: ClusterConfiguration" in part][0]
    elif ARGS[:2] == ["init", "phase"]:
        if "apiserver" in ARGS:
            write(KUBERNETES + "/manifests/kube-apiserver.yaml", "")
    elif ARGS[0] in ("join", "init"):
        text = read(config)
        if ARGS[0] == "init":
            document["ClusterConfiguration"] = [part for part in text.split("\n---\n")
                                                if "kind: ClusterConfiguration" in part][0]
        name = re.search(r"^  name: \"?([^\s\"]+)", text, re.MULTILINE).group(1)
        write(KUBERNETES + "/kubelet.conf", "")
        world["nodes"] = [node for node in world["nodes"] if node["metadata"]["name"] != name] + [{
            "metadata": {"name": name}, "spec": {}, "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": VERSION, "machineID": read("/etc/machine-id").strip()}}}]
        if "controlPlane:" in text or ARGS[0] == "init":
            address = re.search(r"advertiseAddress: \"?([^\s\"]+)", text).group(1)
            for path in ("admin.conf", "pki/apiserver-etcd-client.crt"):
                write("%s/%s" % (KUBERNETES, path), "")
            static_pods(world, name, VERSION)
            write("/var/lib/etcd/member/x", "")
            world["members"].append({"ID": 99, "name": name, "peerURLs": ["https://%s:2380" % address],
                                     "clientURLs": ["https://%s:2379" % address]})
    elif ARGS[0] == "upgrade":
        name = os.environ["KAAS_NODE"]
        if ARGS[1] == "apply":
            document["ClusterConfiguration"] = re.sub(r"(?m)^kubernetesVersion:.*$", "kubernetesVersion: " + VERSION,
                                                      document["ClusterConfiguration"])
        if os.path.exists(KUBERNETES + "/manifests/etcd.yaml"):
            static_pods(world, name, VERSION)
        write("/var/lib/kubelet/config.yaml", "")
    elif ARGS[0] == "reset":
        for path in [KUBERNETES + "/manifests", KUBERNETES + "/pki", "/var/lib/etcd/member"]:
            shutil.rmtree(path, ignore_errors=True)
        for path in glob.glob(KUBERNETES + "/*.conf"):
            os.unlink(path)
    store(world)


def systemctl():
    path = "%s/units/%s" % (WORLD, ARGS[-1])
    now = "%d" % (time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    if ARGS[0] == "show":
        since, changed = read(path).split() if os.path.exists(path) else ("1", "1")
        print("LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nActiveEnterTimestampMonotonic=%s\n"
              "StateChangeTimestampMonotonic=%s" % (since, changed))
        return
    note("systemctl " + " ".join(ARGS))
    write(path, "%s %s" % (now if ARGS[0] != "reload" else "1", now))
    if ARGS == ["restart", "kubelet.service"]:
        world = load()
        version = re.search(r"VERSION=(\S+)", read(WORLD + "/bin/kubelet")).group(1)
        for node in world["nodes"]:
            if node["metadata"]["name"] == os.environ["KAAS_NODE"]:
                node["status"]["nodeInfo"]["kubeletVersion"] = version
        store(world)


if ARGS[:1] in (["version"], ["--version"]):
    print(VERSION if PROGRAM == "kubeadm" else "Kubernetes " + VERSION)
else:
    {"kubeadm": kubeadm, "systemctl": systemctl}[PROGRAM]()
