#!/usr/bin/python3
"""List every file below a directory with its type, mode, owner, time, and checksum or target: tree.py ROOT."""

import hashlib
import os
import stat
import sys


def main() -> None:
    """Write the list in the order of the paths."""
    root = sys.argv[1].rstrip("/")
    for top, dirs, files in os.walk(root):
        dirs.sort()
        for name in sorted(dirs + files):
            path = os.path.join(top, name)
            info = os.lstat(path)
            content = "-"
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                with open(path, "rb") as f:
                    content = hashlib.file_digest(f, "sha256").hexdigest()
            shown = path[len(root):].encode("unicode_escape").decode()
            print(stat.filemode(info.st_mode), info.st_uid, info.st_gid, int(info.st_mtime), shown, content)


main()
