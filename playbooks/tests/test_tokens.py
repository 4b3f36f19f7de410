# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of kaas_tokens with openssl and a pretended API server."""
import base64
import json
import os
import subprocess
import sys
import time

from support import Case, kaas, load, run

module = load("library/kaas_tokens.py", "kaas_tokens")
module.PAUSE = 0.02

# kubectl answers from answers.json, by the words that the call has.
KUBECTL = """#!{python}
import json, sys
with open({root!r} + "/answers.json") as file:
    answers = json.load(file)
for word in sys.argv[1:]:
    if word in answers:
        print(answers[word].pop(0) if isinstance(answers[word], list) and answers[word] else answers[word])
        break
else:
    sys.exit("connection refused")
with open({root!r} + "/answers.json", "w") as file:
    json.dump(answers, file)
"""


def token(key):
    """Return a token that says that the key has signed it."""
    header = json.dumps({"alg": "RS256", "kid": key}).encode()
    return base64.urlsafe_b64encode(header).decode().rstrip("=") + ".e30.c2ln"


def moment(seconds):
    """Return a time as the API has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def pod(name, made, life=3607, phase="Running"):
    """Return a pod with a token."""
    return {"metadata": {"namespace": "default", "name": name, "creationTimestamp": moment(made)},
            "status": {"phase": phase}, "spec": {
        "volumes": [{"name": "config"}, {"name": "token", "projected": {
            "sources": [{"configMap": {}}, {"serviceAccountToken": {"expirationSeconds": life}}]}}]}}


def secret(name, key):
    """Return a Secret with a token."""
    data = {"token": base64.b64encode(token(key).encode()).decode()} if key else None
    return {"metadata": {"namespace": "default", "name": name}, "data": data}


class TokensTest(Case):
    """A master in a directory."""

    def setUp(self):
        super().setUp()
        self.write("bin/kubectl", KUBECTL.format(python=sys.executable, root=self.root), 0o755)
        self.keys = [self.key() for _ in range(2)]
        os.makedirs(self.path("pki"))
        self.answers()

    def key(self):
        """Return a private key and its public half."""
        def made(*argv, **more):
            return subprocess.run(["openssl", *argv], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  universal_newlines=True, **more).stdout
        private = made("genrsa", "2048")
        return private, made("pkey", "-pubout", input=private)

    def answers(self, pods=(), secrets=(), stale=("0",), **more):
        """Say what the API server answers."""
        metrics = ["# TYPE serviceaccount_stale_tokens_total counter\nserviceaccount_stale_tokens_total %s\n" % count
                   for count in stale]
        self.write("answers.json", json.dumps(dict({
            "pods": json.dumps({"items": list(pods)}), "secrets": json.dumps({"items": list(secrets)}),
            "/metrics": metrics if len(metrics) > 1 else metrics[0]}, **more)))

    def act(self, action, signs=0, accepted=(0,), check=False, **more):
        """Do one action."""
        args = dict({"key": self.keys[signs][0], "public": "".join(self.keys[i][1] for i in accepted),
                     "kubernetes_dir": self.root,
                     "server": "https://10.0.0.1:6443", "quiet": 0, "kubectl": self.path("bin/kubectl"),
                     "openssl": "openssl", "timeout": 0}, **more)
        tokens = module.Tokens(args, check)
        try:
            getattr(tokens, action)()
        except kaas.Failure as err:
            return err.result()["msg"]
        return tokens.did

    def test_a_rotation(self):
        self.assertEqual(self.act("write", check=True), ["sa.pub", "sa.key"])
        self.assertEqual(os.listdir(self.path("pki")), [])
        for signs, accepted, did in ((0, (0,), ["sa.pub", "sa.key"]), (0, (0, 1), ["sa.pub"]),
                                     (1, (1, 0), ["sa.pub", "sa.key"]), (1, (1,), ["sa.pub"])):
            self.assertEqual(self.act("write", signs, accepted), did)
            self.assertEqual(self.act("write", signs, accepted), [], "a second run changed something")
        self.assertEqual((self.read("pki/sa.key"), self.mode("pki/sa.key"), self.mode("pki/sa.pub")),
                         (self.keys[1][0], 0o600, 0o644))

    def test_a_key_that_signs_is_not_taken_away(self):
        self.act("write", 1, (1,))
        self.assertIn("with a key that the director does not have", self.act("write", 0, (0,)))
        self.assertEqual(self.read("pki/sa.key"), self.keys[1][0])

    def test_waits_for_the_api_server(self):
        self.act("write", 0, (0, 1))
        one, two = (module.ids(key[1])[0] for key in self.keys)
        self.assertIn("connection refused", self.act("served"))
        for published, signs, want in (([one], one, "tokens of 1 other keys"),
                                       ([two, one], two, "signs with another key"), ([two, one], one, [])):
            self.answers(**{"/openid/v1/jwks": json.dumps({"keys": [{"kid": key} for key in published]}),
                            "token": token(signs)})
            got = self.act("served")
            self.assertTrue(got == want or want and want in got, got)

    def test_tokens_that_may_be_in_use(self):
        self.act("write")
        now, present = time.time(), module.ids(self.keys[0][1])[0]
        os.utime(self.path("pki/sa.key"), (now - 1800, now - 1800))
        fine = [pod("later", now - 60), pod("ended", now - 9000, phase="Succeeded")]
        self.answers(fine, [secret("present", present), secret("empty", "")])
        self.assertEqual(self.act("unused"), [])
        self.answers(fine + [pod("web", now - 7200), pod("short", now - 7200, life=600)])
        self.assertRegex(self.act("unused"), r"may be in use until \d\d:\d\d:\d\d UTC: default/web\b")
        self.answers(fine, [secret("robot", "former")])
        self.assertIn("kept in these Secrets: default/robot", self.act("unused"))
        self.answers(fine, stale=("4", "7"))
        self.assertIn("took 3 of them", self.act("unused"))
        os.utime(self.path("pki/sa.key"), (now - 4000, now - 4000))
        self.answers([pod("web", now - 7200)])
        self.assertEqual(self.act("unused"), [])

    def test_answers_as_a_module(self):
        args = {"action": "write", "key": self.keys[0][0], "public": self.keys[0][1], "kubernetes_dir": self.root}
        answer = run("kaas_tokens", args, path=self.bin)
        self.assertEqual((answer["changed"], answer["did"]), (True, ["sa.pub", "sa.key"]))
        self.assertNotIn("PRIVATE", json.dumps(answer))
