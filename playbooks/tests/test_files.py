# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import os
import unittest

from support import Case, run


class Files(Case):
    """kaas_files."""

    def ensure(self, *files, check=False):
        return run("kaas_files", {"files": list(files)}, check=check)

    def test_writes_once(self):
        wanted = [
            {"path": self.path("a/b/c"), "content": "one\n", "mode": "0600"},
            {"path": self.path("d"), "state": "directory", "mode": "0700"},
            {"path": self.path("hosts"), "state": "block", "content": "10.0.0.1 a", "marker": "test"},
        ]
        would = self.ensure(*wanted, check=True)
        self.assertTrue(would["changed"])
        self.assertEqual(os.listdir(self.root), ["bin"], "check mode wrote something")
        first = self.ensure(*wanted)
        self.assertEqual(first["paths"], [self.path("a/b/c"), self.path("d"), self.path("hosts")])
        self.assertEqual(would["diff"], first["diff"])
        self.assertEqual((self.read("a/b/c"), self.mode("a/b/c"), self.mode("d")), ("one\n", 0o600, 0o700))
        self.assertFalse(self.ensure(*wanted)["changed"])
        self.assertFalse(self.ensure(*wanted, check=True)["changed"])

    def test_prunes_what_is_marked(self):
        for name in ("kept/.ours", "gone/.ours", "gone/a/b", "theirs/file", "plain"):
            self.write(name, "")
        os.symlink(self.path("kept"), self.path("link"))
        wanted = {"path": self.root, "state": "pruned", "marker": ".ours", "keep": ["kept"]}
        self.assertTrue(self.ensure(wanted, check=True)["changed"])
        self.assertTrue(os.path.exists(self.path("gone/a/b")), "check mode removed something")
        self.assertEqual(self.ensure(wanted)["paths"], [self.root])
        self.assertEqual(sorted(os.listdir(self.root)), ["bin", "kept", "link", "plain", "theirs"])
        self.assertFalse(self.ensure(wanted)["changed"])
        self.assertFalse(self.ensure({"path": self.path("none"), "state": "pruned"})["changed"])

    def test_mends_mode_and_content(self):
        self.write("f", "old", 0o666)
        self.assertTrue(self.ensure({"path": self.path("f"), "content": "old"})["changed"])
        self.assertEqual(self.mode("f"), 0o644)
        self.assertTrue(self.ensure({"path": self.path("f"), "content": "new"})["changed"])
        self.assertEqual(self.read("f"), "new")
        self.assertEqual(sorted(os.listdir(self.root)), ["bin", "f"], "a temporary file is left")

    def test_block_keeps_the_rest(self):
        self.write("hosts", "127.0.0.1 localhost\n", 0o640)
        block = {"path": self.path("hosts"), "state": "block", "marker": "kaas hosts"}
        self.ensure(dict(block, content="10.0.0.1 a\n10.0.0.2 b\n"))
        self.assertEqual(self.read("hosts"),
                         "127.0.0.1 localhost\n# BEGIN kaas hosts\n10.0.0.1 a\n10.0.0.2 b\n# END kaas hosts\n")
        self.write("hosts", self.read("hosts") + "::1 six\n", 0o640)
        self.ensure(dict(block, content="10.0.0.3 c"))
        self.assertEqual(self.read("hosts"),
                         "127.0.0.1 localhost\n# BEGIN kaas hosts\n10.0.0.3 c\n# END kaas hosts\n::1 six\n")
        self.assertEqual(self.mode("hosts"), 0o640)
        self.assertTrue(self.ensure(dict(block, content=""))["changed"])
        self.assertEqual(self.read("hosts"), "127.0.0.1 localhost\n::1 six\n")
        self.assertFalse(self.ensure(dict(block, content=""))["changed"])

    def test_writes_through_a_link(self):
        self.write("real", "x\n")
        os.symlink(self.path("real"), self.path("link"))
        self.ensure({"path": self.path("link"), "content": "y\n"})
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.read("real"), "y\n")

    def test_absent(self):
        self.write("tree/a/b", "x")
        gone = {"path": self.path("tree"), "state": "absent"}
        self.assertTrue(self.ensure(gone, check=True)["changed"])
        self.assertTrue(os.path.exists(self.path("tree/a/b")))
        self.assertTrue(self.ensure(gone)["changed"])
        self.assertFalse(self.ensure(gone)["changed"])

    def test_refuses_before_the_first_change(self):
        for bad in ({"path": "relative", "content": "x"}, {"path": self.path("x")},
                    {"path": self.path("x"), "content": "", "owner": "nobody-is-called-so"},
                    {"path": self.path("x"), "content": "", "mode": "rw"}):
            got = self.ensure({"path": self.path("first"), "content": "x"}, bad)
            self.assertTrue(got["failed"], bad)
            self.assertFalse(os.path.exists(self.path("first")), bad)

    def test_unknown_owner(self):
        got = self.ensure({"path": self.path("left"), "state": "directory", "owner": "nobody-is-called-so",
                           "unknown_owner": "skip"}, {"path": self.path("last"), "content": "x"})
        self.assertEqual(got["paths"], [self.path("last")])
        self.assertFalse(os.path.exists(self.path("left")))


if __name__ == "__main__":
    unittest.main()
