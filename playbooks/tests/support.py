# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Loads the modules of library/ as Python modules, and runs them in processes of their own as Ansible would."""
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)


def load(path, name):
    """Load a file as a Python module."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(TREE, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
kaas = load("module_utils/kaas.py", "ansible.module_utils.kaas")
load("module_utils/kaas_pem.py", "ansible.module_utils.kaas_pem")
load("module_utils/kaas_nodes.py", "ansible.module_utils.kaas_nodes")
load("module_utils/kaas_contents.py", "ansible.module_utils.kaas_contents")


def run(module, args, check=False, path=""):
    """Run a module of library/ in a process of its own and return its answer."""
    request = {"ANSIBLE_MODULE_ARGS": dict(args, _ansible_check_mode=check, _ansible_diff=True,
                                           _ansible_tmpdir=tempfile.gettempdir())}
    program = ("import sys; sys.dont_write_bytecode = True; sys.path.insert(0, %r); import support; "
               "m = support.load('library/%s.py', %r); m.main()" % (HERE, module, module))
    environment = dict(os.environ, PATH=path + os.pathsep + os.environ["PATH"])
    done = subprocess.run([sys.executable, "-c", program], input=json.dumps(request), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, check=False, env=environment, timeout=60)
    try:
        return json.loads(done.stdout)
    except ValueError as err:
        raise AssertionError("no answer: %s%s" % (done.stdout, done.stderr)) from err


class Case(unittest.TestCase):
    """A test with a directory and programs of its own."""

    maxDiff = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        self.bin = os.path.join(self.root, "bin")
        os.mkdir(self.bin)

    def path(self, *parts):
        """Return a path in the test's directory."""
        return os.path.join(self.root, *parts)

    def write(self, name, text, mode=0o644):
        """Write a file and return its path."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def read(self, name):
        """Read a file."""
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def mode(self, name):
        """Return a file's permissions."""
        return stat.S_IMODE(os.stat(self.path(name)).st_mode)

    def program(self, name, script):
        """Put a program into the test's PATH that notes its arguments in calls."""
        return self.write("bin/" + name, "#!/bin/sh\necho \"%s $*\" >> %s\n%s" % (
            name, self.path("calls"), textwrap.dedent(script)), 0o755)

    def cluster(self, **things):
        """Stand up a cluster that fake_kubectl.py and fake_etcdctl.py serve, with the things given by kind."""
        self.write("cluster.json", json.dumps(things))
        self.write("admin.conf", "")
        for name in ("kubectl", "etcdctl"):
            self.write("bin/" + name, "#!/bin/sh\nexec %s %s %s \"$@\"\n" % (
                sys.executable, os.path.join(HERE, "fake_%s.py" % name), self.root), 0o755)

    def things(self, kind):
        """Return what the cluster holds of a kind."""
        return json.loads(self.read("cluster.json")).get(kind, [])

    def calls(self):
        """Return what the programs were called with."""
        return self.read("calls").splitlines() if os.path.exists(self.path("calls")) else []
