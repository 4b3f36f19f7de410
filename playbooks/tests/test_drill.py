# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of kaas_restore_drill, and of what manifests of backups say."""
import base64
import json
import os

from support import Case, kaas, load

contents = load("module_utils/kaas_contents.py", "ansible.module_utils.kaas_contents").contents
module = load("library/kaas_restore_drill.py", "kaas_restore_drill")
module.PAUSE, module.PAGE, module.PATIENCE = 0.02, 2, 1

KEYS = [
    "/registry/namespaces/default", "/registry/namespaces/shop", "/registry/minions/m1", "/registry/secrets/shop/a",
    "/registry/secrets/shop/b", "/registry/secrets/shop/c", "/registry/events/shop/x",
    "/registry/masterleases/10.0.0.1", "/registry/services/specs/shop/web", "/registry/services/endpoints/shop/web",
    "/registry/apps.example/widgets/shop/w",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.apps.example", "compact_rev_key", "",
]
LISTS = {"namespaces": ["default", "shop"], "nodes": ["m1"], "customresourcedefinitions": ["widgets.apps.example"],
         "secrets": ["a", "b", "c"]}


class ContentsTest(Case):
    """What etcd has."""

    def test_counts_by_resource(self):
        self.assertEqual(contents(KEYS), {
            "resources": {"namespaces": 2, "minions": 1, "secrets": 3, "services/specs": 1, "services/endpoints": 1,
                          "apps.example/widgets": 1, "apiextensions.k8s.io/customresourcedefinitions": 1},
            "namespaces": ["default", "shop"], "nodes": ["m1"], "crds": ["widgets.apps.example"]})

    def test_leaves_out_very_many_names(self):
        many = contents(["/registry/namespaces/n%d" % n for n in range(2001)])
        self.assertEqual((many["resources"], "namespaces" in many), ({"namespaces": 2001}, False))


class DrillTest(Case):
    """A machine in a directory."""

    def setUp(self):
        super().setUp()
        self.write("etcd/member/wal", "restored")
        self.write("restore/staged.json", json.dumps({"id": "p1"}))
        self.secrets("k8s:enc:secretbox:v1:key1:\x01\x02")
        for name, body in {
            "etcdctl": 'case "$*" in *health*) [ ! -e %(root)s/dead ] ;; *keys-only*) cat %(root)s/keys ;; *secrets*) '
                       'case "$*" in *b!*) cat %(root)s/page2 ;; *) cat %(root)s/page1 ;; esac ;; esac',
            "kubectl": 'case "$*" in *version*) echo \'{"gitVersion": "v1.37.2"}\' ;; *) for last; do :; done; '
            'name=${last%%%%\\?*}; '
                       'name=${name##*/}; [ "$name" = secrets ] && [ -e %(root)s/sealed ] && { echo "InternalError" '
            '>&2; exit 1; }; '
                       'case "$last" in *continue=next*) cat %(root)s/$name.2 ;; *) cat %(root)s/$name.1 ;; esac ;; '
            'esac',
            "kubeadm": 'case "$*" in *apiserver*) touch %(root)s/api ;; esac', "systemctl": "",
        }.items():
            self.write("bin/" + name, "#!/bin/sh\necho %s \"$@\" >> %s/calls\n%s\n"
                       % (name, self.root, body % {"root": self.root}), 0o755)
        self.write("keys", "\n\n".join(KEYS))
        for name, of in LISTS.items():
            self.write(name + ".1", json.dumps({"metadata": {"continue": "next"},
                                                "items": [{"metadata": {"name": one}} for one in of[:1]]}))
            self.write(name + ".2", json.dumps({"metadata": {},
                                                "items": [{"metadata": {"name": one}} for one in of[1:]]}))
        self.addCleanup(setattr, module, "api_ready", module.api_ready)
        module.api_ready = lambda server, ca: os.path.exists(self.path("api"))

    def secrets(self, *values):
        """Store Secrets, page by page."""
        values = [base64.b64encode(value.encode()).decode() for value in values]

        def page(numbers):
            return json.dumps({"kvs": [{"key": base64.b64encode(b"/registry/secrets/shop/" + name.encode()).decode(),
                                        "value": values[0 if n < 2 else -1]}
                                       for n, name in numbers]})
        self.write("page1", page([(0, "a"), (1, "b")]))
        self.write("page2", page([(2, "c")]))

    def act(self, action, check=False):
        """Do one action and return what it did."""
        args = {"dir": self.path("drill"), "restore_dir": self.path("restore"), "data_dir": self.path("etcd"),
                "kubernetes_dir": self.path("kubernetes"), "server": "https://10.90.0.11:6443", "timeout": 1}
        args.update({name: os.path.join(self.bin, name) for name in ("kubeadm", "kubectl", "etcdctl", "systemctl")})
        drill = module.Drill(args, check)
        getattr(drill, action)()
        return drill.did

    def calls(self):
        """Return what was called."""
        with open(self.path("calls"), encoding="utf-8") as file:
            return file.read()

    def test_asks_once(self):
        self.assertEqual([self.act(action, check=True) for action in ("etcd", "count")], [["etcd"], ["count"]])
        self.assertFalse(os.path.exists(self.path("calls")), "check mode did something")
        for action in ("etcd", "count", "api", "ask"):
            self.assertEqual(self.act(action), [action])
        calls = self.calls()
        self.assertLess(calls.index("keys-only"), calls.index("control-plane apiserver"),
                        "an API server wrote before the keys were counted")
        with open(self.path("drill/answer.json"), encoding="utf-8") as file:
            answer = json.load(file)
        self.assertEqual(answer["restored"], contents(KEYS))
        self.assertEqual(answer["api"], {"version": "v1.37.2", "namespaces": ["default", "shop"], "nodes": ["m1"],
                                         "crds": ["widgets.apps.example"], "secrets": 3})
        self.assertEqual((answer["keys"], sorted(answer["seconds"])), (["key1"], ["api", "ask", "count", "etcd"]))
        self.assertEqual([self.act(action) for action in ("etcd", "count", "api", "ask")], [[], [], [], []])
        self.assertEqual(self.calls(), calls, "a second run did something")
        self.write("restore/staged.json", json.dumps({"id": "p2"}))
        self.assertEqual(self.act("etcd"), ["etcd"], "another restore is another drill")

    def test_sees_secrets_in_the_clear(self):
        self.secrets("k8s:enc:secretbox:v1:key2:\x01", "plain")
        self.act("etcd")
        self.act("count")
        with open(self.path("drill/drill.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["keys"], ["", "key2"])

    def test_says_what_is_wrong(self):
        self.write("dead", "")
        with self.assertRaisesRegex(kaas.Failure, "etcd does not answer on the restored data"):
            self.act("etcd")
        os.unlink(self.path("dead"))
        self.act("etcd")
        self.act("count")
        self.act("api")
        self.write("sealed", "")
        with self.assertRaisesRegex(kaas.Failure, "the list of secrets of the restored API failed: InternalError"):
            self.act("ask")
        self.assertFalse(os.path.exists(self.path("drill/answer.json")))

    def test_wants_restored_data(self):
        os.unlink(self.path("restore/staged.json"))
        with self.assertRaisesRegex(kaas.Failure, "no backup was restored"):
            self.act("etcd")
