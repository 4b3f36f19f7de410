# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import os
import unittest

from support import Case, run


class NodeInfo(Case):
    """kaas_node_info."""

    def test_look(self):
        self.write("proc/sys/kernel/hostname", "m1\n")
        self.write("proc/sys/net/ipv4/ip_forward", "0\n")
        self.write("proc/sys/net/ipv4/tcp_mem", "1\t2\t3\n")
        self.write("proc/swaps", "Filename Type Size Used Priority\n/dev/vda2 partition 1 0 -2\n")
        self.write("proc/meminfo", "MemTotal:  2048000 kB\n")
        self.write("etc/kaas-release", '{"kubernetes": "v1.37.2"}')
        self.write("etc/resolv.conf", "search x\nnameserver 10.0.0.53\n")
        self.write("etc/kubernetes/kaas/state.json", '{"phase": "done"}')
        self.write("etc/machine-id", "0123\n")
        self.write("usr/bin/kubelet", "#!/bin/sh\necho Kubernetes v1.37.2\n", 0o755)
        self.write("usr/bin/kubectl",
                   "#!/bin/sh\ntest \"$*\" = 'version --client' && printf 'Client Version: v1.37.1-x\\nKustomize "
                   "Version: v5.7.1\\n'\n", 0o755)
        self.write("usr/bin/kubeadm", "#!/bin/sh\nexit 1\n", 0o755)
        self.write("usr/bin/ip", "#!/bin/sh\necho '[{\"ifname\": \"lo\", \"addr_info\": []}, "
                   "{\"ifname\": \"eth0\", \"addr_info\": [{\"local\": \"10.0.0.1\"}]}]'\n", 0o755)
        os.makedirs(self.path("sys/module/br_netfilter"))
        self.write("lib/modules/%s/modules.builtin" % os.uname().release, "kernel/fs/overlayfs/overlay.ko\n")
        got = run("kaas_node_info", {
            "root": self.root, "modules": ["overlay", "br-netfilter", "ip_vs"], "programs": ["kubelet", "crictl"],
            "versions": ["kubelet", "kubectl", "kubeadm", "crictl"], "address": "10.0.0.1",
            "sysctls": {"net.ipv4.ip_forward": "1", "net.ipv4.tcp_mem": "1 2 3", "net.none": 1}})["node"]
        got.pop("cpus")
        self.assertEqual(got, {
            "hostname": "m1", "swap": ["/dev/vda2"], "modules_missing": ["ip_vs"], "programs_missing": ["crictl"],
            "sysctls_differing": ["net.ipv4.ip_forward", "net.none"], "release": {"kubernetes": "v1.37.2"},
            "nameservers": ["10.0.0.53"], "memory_mb": 2000, "member": True, "machine_id": "0123", "interface": "eth0",
            "versions": {"kubelet": "v1.37.2", "kubectl": "v1.37.1-x"}})

    def test_nothing_there(self):
        got = run("kaas_node_info", {"root": self.root})["node"]
        self.assertEqual((got["release"], got["swap"], got["member"], got["nameservers"]), ({}, [], False, []))
        self.assertEqual((got["versions"], got["machine_id"], got["interface"]), ({}, "", ""))


class Units(Case):
    """kaas_units."""

    SYSTEMCTL = """
    if [ "$1" = show ]; then
      for word; do unit=$word; done
      cat %(root)s/$unit
    fi
    """

    def ensure(self, unit, check=False):
        return run("kaas_units", {"units": [unit], "systemctl": self.path("bin/systemctl")}, check=check)

    def setUp(self):
        super().setUp()
        self.program("systemctl", self.SYSTEMCTL % {"root": self.root})
        self.config = self.write("config", "x")

    def show(self, load="loaded", active="active", enabled="enabled", since=0, changed=0, name="x.service", stale="no"):
        self.write(name,
                   "Id=x.service\nLoadState=%s\nActiveState=%s\nUnitFileState=%s\nActiveEnterTimestampMonotonic=%d\n"
                   "StateChangeTimestampMonotonic=%d\nNeedDaemonReload=%s\n"
                   % (load, active, enabled, since, changed, stale))

    def test_as_it_should_be(self):
        self.show(since=1 << 62)
        self.assertEqual(self.ensure({"name": "x.service", "reads": [self.config, self.path("none")]})["did"], [])

    def test_stale_configuration(self):
        self.show(since=1)
        self.assertEqual(self.ensure({"name": "x.service", "reads": [self.config]}, check=True)["did"],
                         ["restart x.service"])
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual(self.ensure({"name": "x.service", "reads": [self.config]})["did"], ["restart x.service"])
        self.assertEqual(self.calls()[-1], "systemctl restart x.service")

    def test_reload(self):
        unit = {"name": "x.service", "reads": [self.config], "reload": True}
        self.show(since=1, changed=1)
        self.assertEqual(self.ensure(unit)["did"], ["reload x.service"])
        self.show(since=1, changed=1 << 62)
        self.assertEqual(self.ensure(unit)["did"], [])

    def test_stopped(self):
        unit = {"name": "x.service", "running": False}
        self.show()
        self.assertEqual(self.ensure(unit, check=True)["did"], ["disable x.service", "stop x.service"])
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual(self.ensure(unit)["did"], ["disable x.service", "stop x.service"])
        self.show(active="inactive", enabled="disabled")
        self.assertEqual(self.ensure(unit)["did"], [])
        self.show(load="not-found", active="inactive", enabled="")
        self.assertEqual(self.ensure(unit)["did"], [])

    def test_told_to_end(self):
        unit = {"name": "x.service", "running": False, "signal": "SIGINT"}
        self.show()
        self.show(active="inactive", name="after")
        self.program("systemctl", self.SYSTEMCTL % {"root": self.root}
                     + "\n[ $1 != kill ] || cp %(root)s/after %(root)s/x.service\n" % {"root": self.root})
        self.assertEqual(self.ensure(unit, check=True)["did"], ["disable x.service", "stop x.service"])
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual(self.ensure(unit)["did"], ["disable x.service", "stop x.service"])
        self.assertEqual([line.split()[1] for line in self.calls()],
                         ["show", "show", "disable", "kill", "show", "stop"])
        self.assertIn("systemctl kill --signal=SIGINT x.service", self.calls())

    def test_another_unit_file(self):
        self.show(since=1, stale="yes")
        self.assertEqual(self.ensure({"name": "x.service", "reads": [self.config]}, check=True)["did"],
                         ["daemon-reload", "restart x.service"])
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual(self.ensure({"name": "x.service", "reads": [self.config]})["did"],
                         ["daemon-reload", "restart x.service"])
        self.assertEqual(self.calls()[2:], ["systemctl daemon-reload", "systemctl restart x.service"])

    def test_off(self):
        self.show(active="failed", enabled="disabled")
        self.assertEqual(self.ensure({"name": "x.service"})["did"], ["enable x.service", "start x.service"])

    def test_missing(self):
        self.show(load="not-found")
        self.assertIn("is not there", self.ensure({"name": "x.service"})["msg"])
        self.assertIn("is not there", self.ensure({"name": "x.service"}, check=True)["msg"])

    def test_not_written_yet(self):
        unit = {"name": "x.service", "written": True}
        self.show(load="not-found")
        self.assertEqual(self.ensure(unit, check=True)["did"], ["start x.service"])
        self.assertIn("is not there", self.ensure(unit)["msg"])


if __name__ == "__main__":
    unittest.main()
