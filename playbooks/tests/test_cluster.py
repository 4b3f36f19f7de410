# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import json
import unittest

from support import Case, kaas, load, run


class Apply(Case):
    """kaas_apply."""

    def ensure(self, check=False, **args):
        self.write("admin.conf", "")
        return run("kaas_apply", dict({
            "manifest": "kind: X\n", "kubeconfig": self.path("admin.conf"), "kubectl": self.path("bin/kubectl"),
            "timeout": 1}, **args), check=check)

    DIFFERS = """
        cat >/dev/null
        case "$*" in
        *diff*)
            name=v1.ConfigMap.kube-system.a
            echo "Files /tmp/LIVE-1/$name and /tmp/MERGED-2/$name differ"; exit 1 ;;
        *) printf 'configmap/a configured\\nb/y configured\\n' ;;
        esac
        """

    def test_applies_what_differs(self):
        self.program("kubectl", self.DIFFERS)
        self.assertEqual(self.ensure()["objects"], ["v1.ConfigMap.kube-system.a"])
        self.assertIn("apply", self.calls()[-1])

    def test_does_not_believe_apply(self):
        self.program("kubectl",
                     "cat >/dev/null; case \"$*\" in *diff*) ;; *) echo 'poddisruptionbudget.policy/a configured' ;; "
                     "esac")
        self.assertFalse(self.ensure()["changed"])
        self.assertFalse([call for call in self.calls() if "apply" in call])

    def test_check_mode(self):
        self.program("kubectl", self.DIFFERS)
        self.assertEqual(self.ensure(check=True)["objects"], ["v1.ConfigMap.kube-system.a"])
        self.assertFalse([call for call in self.calls() if "apply" in call])
        self.assertTrue(self.ensure(check=True, kubeconfig=self.path("none"))["changed"])

    def test_digest(self):
        self.program("kubectl", """
            case "$*" in
            *"get configmap"*) cat %(r)s/digest 2>/dev/null || exit 1 ;;
            *"get -o name"*) test ! -e %(r)s/gone ;;
            *apply*)
                cat > %(r)s/stdin
                sed -n 's/.*"sha256": "\\([0-9a-f]*\\)".*/\\1/p' %(r)s/stdin > %(r)s/digest
                echo 'a/x created' ;;
            esac
            """ % {"r": self.root})
        args = {"digest_name": "d", "present": ["daemonset/x"]}
        self.assertTrue(self.ensure(**args)["changed"])
        self.assertFalse(self.ensure(**args)["changed"])
        self.assertTrue(self.ensure(manifest="kind: Y\n", **args)["changed"])
        self.write("gone", "")
        self.assertTrue(self.ensure(manifest="kind: Y\n", **args)["changed"])

    def test_new_namespace(self):
        self.program("kubectl", """
            cat >/dev/null
            case "$*" in
            *diff*) echo 'Error from server (NotFound): namespaces "shop" not found' >&2; exit 2 ;;
            *dry-run*) printf '%b' "$(cat "$0.made")" ;;
            *) printf 'namespace/shop created\n' ;;
            esac
            """)
        self.write("bin/kubectl.made", "namespace/shop\nrole.rbac.authorization.k8s.io/a\n")
        self.assertEqual(self.ensure(check=True)["objects"], ["namespace/shop", "role.rbac.authorization.k8s.io/a"])
        self.assertFalse([call for call in self.calls() if "apply" in call])
        self.assertTrue(self.ensure()["changed"])
        self.assertIn("apply", self.calls()[-1])
        self.write("bin/kubectl.made", "role.rbac.authorization.k8s.io/a\n")
        self.assertIn('namespaces "shop" not found', self.ensure()["msg"])

    def test_failures(self):
        self.program("kubectl", "echo 'error: no such kind' >&2; exit 2")
        self.assertIn("kubectl diff failed: error: no such kind", self.ensure()["msg"])
        self.assertEqual(len(self.calls()), 1, "a lasting error was tried again")
        self.program("kubectl", "echo 'dial tcp: connection refused' >&2; exit 2")
        self.assertIn("did not answer in time", self.ensure()["msg"])
        self.assertGreater(len(self.calls()), 2)


class Check(unittest.TestCase):
    """kaas_check."""

    module = load("library/kaas_check.py", "kaas_check")

    def test_not_ready(self):
        def node(name, status):
            return {"metadata": {"name": name},
                    "status": {"conditions": [{"type": "Ready", "status": status, "message": "cni"}]}}
        document = {"items": [node("a", "True"), node("b", "False"), {"metadata": {"name": "c"}, "status": {}}]}
        self.assertEqual(self.module.not_ready(document, ["a"]), {})
        self.assertEqual(self.module.not_ready(document, ["a", "b", "c", "d"]),
                         {"b": "cni", "c": "no condition yet", "d": "it has not joined"})

    def test_probes(self):
        pods = {"items": [
            {"metadata": {"name": "p1"}, "spec": {"nodeName": "a"},
             "status": {"podIP": "10.1.1.1", "conditions": [{"type": "Ready", "status": "True"}]}},
            {"metadata": {"name": "p2"}, "spec": {"nodeName": "b"},
             "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull",
                                                                     "message": "no route"}}}]}},
            {"metadata": {"name": "p3"}, "spec": {}},
        ]}
        self.assertEqual(self.module.probes(pods),
                         ({"a": ("p1", "10.1.1.1")}, ["b: ErrImagePull no route", "no node: Pending"]))

    def test_manifest(self):
        document = json.loads(self.module.manifest({"namespace": "n", "image": "i", "ca": "pem"}))
        kinds = [item["kind"] for item in document["items"]]
        self.assertEqual(kinds[0], "Namespace", "the namespace has to come first")
        self.assertIn("DaemonSet", kinds)


class Probes(Case):
    """kaas_check against a kubectl that plays a cluster in which something is in the way."""

    def check(self):
        """Run the module with a second of patience."""
        self.write("admin.conf", "")
        return run("kaas_check", {"nodes": ["a"], "rollouts": [], "image": "i", "kubeconfig": self.path("admin.conf"),
                                  "kubectl": self.path("bin/kubectl"), "timeout": 1})

    def test_waits_for_an_earlier_check(self):
        self.program("kubectl", """
            case "$*" in
            *"get namespace"*) echo '{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}' ;;
            *"get nodes"*|*"nodes"*)
                echo '{"items": [{"metadata": {"name": "a"},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}' ;;
            *) echo '{}' ;;
            esac
            """)
        result = self.check()
        self.assertIn("the probes of an earlier check are gone: not within", result["msg"])
        self.assertFalse([call for call in self.calls() if "apply" in call],
                         "probes were started into a namespace that goes")

    def test_a_failed_clean_up_does_not_hide_what_failed(self):
        self.program("kubectl", """
            case "$*" in
            *"delete namespace"*) echo "Error from server (Forbidden): not yours" >&2; exit 1 ;;
            *"get namespace"*) ;;
            *"get -o json nodes"*)
                echo '{"items": [{"metadata": {"name": "a"},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}' ;;
            *apply*) echo "Error from server (Invalid): no such image" >&2; exit 1 ;;
            esac
            """)
        result = self.check()
        self.assertIn("starting the probes failed", result["msg"])
        self.assertTrue([call for call in self.calls() if "delete namespace" in call], "the probes were left")


class Shared(unittest.TestCase):
    """module_utils/kaas.py."""

    def test_wait_for(self):
        now, answers = [0.0], iter([False, 0, "yes"])

        def sleep(seconds):
            now[0] += seconds
        self.assertEqual(kaas.wait_for(lambda: next(answers), 60, clock=lambda: now[0], sleep=sleep), "yes")
        self.assertEqual(now[0], 4.0)
        self.assertFalse(kaas.wait_for(lambda: False, 5, clock=lambda: now[0], sleep=sleep))
        self.assertEqual(now[0], 9.0)

    def test_clean(self):
        text = "join --token abcdef.0123456789abcdef --certificate-key " + "0f" * 32
        self.assertEqual(kaas.clean(text), "join --token <token> --certificate-key <key>")
        self.assertEqual(kaas.clean("x" * 10, 4), "...xxxx")

    def test_run(self):
        self.assertEqual(kaas.run(["/nowhere/program"])[0], 127)
        self.assertEqual(kaas.run(["sleep", "5"], timeout=0.1)[0], 124)


if __name__ == "__main__":
    unittest.main()
