# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Stands for etcdctl and the etcd behind it. Usage: fake_etcdctl.py DIRECTORY ARGUMENTS...

"members" of DIRECTORY/cluster.json are the members; one with "down" does not answer. Without a majority that answers
nothing is removed.
"""
import fcntl
import json
import sys


def main():
    directory, argv = sys.argv[1], sys.argv[2:]
    endpoints = [word.split("=", 1)[1] for word in argv if word.startswith("--endpoints=")][0].split(",")
    words = [word for word in argv if not word.startswith("-")]
    with open(directory + "/cluster.json", "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        world = json.load(file)
        members = world["members"]
        with open(directory + "/calls", "a", encoding="utf-8") as calls:
            calls.write("etcdctl %s\n" % " ".join(words))
        if words[:2] == ["member", "list"]:
            print(json.dumps({"members": [{key: value for key, value in member.items() if key != "down"}
                                          for member in members]}))
        elif words[:2] == ["endpoint", "health"]:
            down = [member["clientURLs"][0] for member in members if member.get("down") and member.get("clientURLs")]
            print(json.dumps([{"endpoint": url, "health": url not in down,
                               "error": "context deadline exceeded" if url in down else ""}
                              for url in endpoints]))
            sys.exit(1 if set(endpoints) & set(down) else 0)
        elif words[:1] == ["get"]:
            if "--keys-only" in argv:
                print("\n\n".join(world["keys"]))
            else:
                print(json.dumps({"kvs": world["values"]}))
        elif words[:2] == ["member", "remove"]:
            if 2 * sum(1 for member in members if not member.get("down")) <= len(members):
                print("Error: etcdserver: re-configuration failed due to not enough started members", file=sys.stderr)
                sys.exit(1)
            world["members"] = [member for member in members if format(member["ID"], "x") != words[2]]
            file.seek(0)
            file.truncate()
            json.dump(world, file)


main()
