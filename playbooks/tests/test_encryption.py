# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of kaas_encryption with a pretended etcd and API server, which encrypts what is written with the first key of
the configuration."""
import base64
import hashlib
import json
import os
import sys

from support import Case, kaas, load, run

module = load("library/kaas_encryption.py", "kaas_encryption")
module.PAUSE = 0.02
module.PAGE, module.BATCH = 2, 2

# etcdctl answers from etcd.json, {"namespace/name": "key"}; an empty key is a Secret that is not encrypted.
ETCDCTL = """#!{python}
import base64, json, sys
with open({root!r} + "/etcd.json") as file:
    secrets = json.load(file)
begin, limit = sys.argv[sys.argv.index("get") + 1], 2
b64 = lambda text: base64.b64encode(text.encode()).decode()
paths = sorted(path for path in ("/registry/secrets/" + name for name in secrets) if path >= begin)
mark = lambda key: "k8s:enc:secretbox:v1:" + key + ":..." if key else "k8s\\0..."
print(json.dumps({{"kvs": [{{"key": b64(path), "value": b64(mark(secrets[path[18:]]))}} for path in paths[:limit]]}}))
"""
# kubectl replaces with the key in writes, and loses one write if there is a file conflict.
KUBECTL = """#!{python}
import json, os, sys
root = {root!r}
with open(root + "/calls", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
namespace = [word[12:] for word in sys.argv if word.startswith("--namespace=")]
if "--raw" in sys.argv:
    print(open(root + "/metrics").read())
elif "get" in sys.argv:
    names = [word for word in sys.argv[sys.argv.index("secret") + 1:] if not word.startswith("-")]
    print(json.dumps({{"items": [{{"metadata": {{"name": name, "namespace": namespace[0]}}}} for name in names]}}))
elif "replace" in sys.argv:
    items = json.load(sys.stdin)["items"]
    if os.path.exists(root + "/conflict"):
        os.unlink(root + "/conflict")
        items = items[1:]
    with open(root + "/etcd.json") as file:
        secrets = json.load(file)
    for item in items:
        secrets[item["metadata"]["namespace"] + "/" + item["metadata"]["name"]] = open(root + "/writes").read()
    with open(root + "/etcd.json", "w") as file:
        json.dump(secrets, file)
"""


def configuration(*names):
    """Return the API server's configuration with keys of these names."""
    return "      - secretbox:\n          keys:\n" + "".join(
        '            - name: "%s"\n              secret: "%s"\n' % (name, base64.b64encode(name.encode()).decode())
        for name in names)


class EncryptionTest(Case):
    """A master in a directory."""

    def setUp(self):
        super().setUp()
        self.write("bin/etcdctl", ETCDCTL.format(python=sys.executable, root=self.root), 0o755)
        self.write("bin/kubectl", KUBECTL.format(python=sys.executable, root=self.root), 0o755)
        self.etcd({"default/a": "key1", "default/b": "key2", "default/c": "", "kube-system/token": "key1",
                   "other/z": "key1"})
        self.write("writes", "key2")
        self.write("metrics", "")
        self.write("encryption.yaml", configuration("key1"))

    def etcd(self, secrets):
        self.write("etcd.json", json.dumps(secrets))

    def act(self, action, *keys, check=False, **more):
        """Do one action."""
        args = dict({"content": configuration(*keys), "keys": list(keys), "wait": False,
                     "path": self.path("encryption.yaml"),
                     "kubernetes_dir": self.root, "server": "https://10.0.0.1:6443", "kubeconfig": "admin.conf",
                     "timeout": 60,
                     "kubectl": self.path("bin/kubectl"), "etcdctl": self.path("bin/etcdctl")}, **more)
        encryption = module.Encryption(args, check)
        try:
            getattr(encryption, action)()
        except kaas.Failure as err:
            return dict(err.result(), failed=True)
        return encryption.did

    def test_a_further_key(self):
        self.assertEqual(self.act("write", "key1", "key2", check=True), ["configuration"])
        self.assertEqual(self.read("encryption.yaml"), configuration("key1"))
        self.assertEqual(self.act("write", "key1", "key2"), ["configuration"])
        self.assertEqual((self.read("encryption.yaml"), self.mode("encryption.yaml")),
                         (configuration("key1", "key2"), 0o600))
        self.assertEqual(self.act("write", "key1", "key2"), [])

    def test_the_first_configuration(self):
        os.unlink(self.path("encryption.yaml"))
        self.assertEqual(self.act("write", "key1"), ["configuration"])

    def test_a_key_that_is_used_is_not_taken_away(self):
        answer = self.act("write", "key2")
        self.assertIn("encrypted with a key key1 that the director does not have", answer["msg"])
        self.assertEqual(self.read("encryption.yaml"), configuration("key1"))
        self.etcd({"default/a": "key2"})
        self.assertEqual(self.act("write", "key2"), ["configuration"])

    def test_another_key_of_the_same_name(self):
        self.etcd({})
        content = configuration("key1").replace("a2V5MQ==", "b3RoZXI=")
        self.assertIn("key1", self.act("write", "key1", content=content)["msg"])

    def test_waits_until_the_api_server_has_read_it(self):
        metrics = ('apiserver_encryption_config_controller_last_config_info'
                   '{apiserver_id_hash="sha256:a",hash="sha256:%s"} 1\n')
        self.write("metrics", metrics % "other")
        self.assertIn("it has the former one", self.act("write", "key1", wait=True, timeout=0)["msg"])
        self.write("metrics", "")
        self.assertIn("does not look for another", self.act("write", "key1", wait=True, timeout=0)["msg"])
        self.write("metrics", metrics % hashlib.sha256(configuration("key1").encode()).hexdigest())
        self.assertEqual(self.act("write", "key1", wait=True), [])
        self.assertIn("--server=https://10.0.0.1:6443", self.read("calls"))

    def test_encrypts_what_is_encrypted_otherwise(self):
        self.assertEqual(self.act("encrypt", "key2", check=True), ["4 Secrets"])
        self.assertEqual(self.act("encrypt", "key2"), ["4 Secrets"])
        self.assertEqual(set(json.loads(self.read("etcd.json")).values()), {"key2"})
        self.assertNotIn(" b", self.read("calls"))
        self.assertEqual(self.act("encrypt", "key2"), [])

    def test_encrypts_again_what_has_changed_meanwhile(self):
        self.write("conflict", "")
        self.assertEqual(self.act("encrypt", "key2"), ["4 Secrets"])
        self.assertEqual(set(json.loads(self.read("etcd.json")).values()), {"key2"})

    def test_says_that_secrets_are_left(self):
        self.write("writes", "key1")
        self.assertIn("still encrypted with another key than key2", self.act("encrypt", "key2", timeout=0)["msg"])

    def test_answers_as_a_module(self):
        answer = run("kaas_encryption", {"action": "write", "content": configuration("key1"), "keys": ["key1"],
                                         "path": self.path("encryption.yaml")}, path=self.bin)
        self.assertEqual((answer["changed"], answer["did"]), (False, []))
