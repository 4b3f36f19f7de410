#!/usr/bin/python3
"""Write what the appliance is made of: sbom.py ROOT VERSION GO_MODULES OUT_DIR.

GO_MODULES holds the output of `go version -m` of its programs. OUT_DIR/sbom.spdx.json is SPDX 2.3 of the Debian
packages and the Go modules, OUT_DIR/licenses.txt the licences: of packages what their copyright files name, of modules
what the words of their licence files are known for.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys


def debian(root: str) -> list:
    """Return name, version, architecture, source and licences of the packages in the root directory."""
    shown = subprocess.run(
        ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W",
         "-f", "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${Maintainer}\n"],
        check=True, capture_output=True, text=True,
    ).stdout
    packages = []
    for line in sorted(shown.splitlines()):
        name, version, arch, source, maintainer = line.split("\t")
        path = f"{root}/usr/share/doc/{name}/copyright"
        licences = set()
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                licences = set(re.findall(r"^License:[ \t]*(\S[^\n]*)", f.read(), re.M))
        except FileNotFoundError:
            pass
        packages.append((name, version, arch, source, maintainer, sorted(licences)))
    return packages


def modules(text: str) -> list:
    """Return path, version and checksum of every module in the output of `go version -m`."""
    found = set()
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) >= 4 and parts[1] in ("dep", "=>"):
            found.add((parts[2], parts[3], parts[4] if len(parts) > 4 else ""))
        elif len(parts) >= 3 and parts[1] == "mod":
            found.add((parts[2], parts[3] if len(parts) > 3 else "", ""))
    return sorted(found)


# How the texts of licences begin, or what is in no other one.
KNOWN = [
    ("Apache-2.0", r"Apache License\s+Version 2\.0"), ("MPL-2.0", r"Mozilla Public License,? [Vv]ersion 2\.0"),
    ("LGPL-3.0", r"GNU LESSER GENERAL PUBLIC LICENSE\s+Version 3"),
    ("GPL-3.0", r"GNU GENERAL PUBLIC LICENSE\s+Version 3"),
    ("BSD-3-Clause", r"Neither the name|nor the names of"), ("BSD-2-Clause", r"Redistributions in binary form must"),
    ("ISC", r"Permission to use, copy, modify, and/?o?r? distribute this software for any"),
    ("MIT", r"Permission is hereby granted, free of charge"), ("Unlicense", r"This is free and unencumbered software"),
]


def licence(cache: str, path: str, number: str) -> str:
    """Return the licence of a module in Go's cache, by the words of its text."""
    top = f"{cache}/" + re.sub(r"[A-Z]", lambda m: "!" + m.group(0).lower(), f"{path}@{number}")
    texts = []
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        if re.match(r"(?i)(licen[cs]e|copying)", name) and os.path.isfile(f"{top}/{name}"):
            with open(f"{top}/{name}", encoding="utf-8", errors="replace") as f:
                texts.append(f.read())
    found = sorted({next((name for name, words in KNOWN if re.search(words, text)), "unknown") for text in texts})
    return ", ".join(found) or "see the module"


def main() -> None:
    """Write both files."""
    root, version, go_modules, out = sys.argv[1:]
    when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    packages, names = [], []

    def add(kind: str, name: str, number: str, purl: str, supplier: str) -> None:
        ref = "SPDXRef-" + kind + "-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)
        while ref in names:
            ref += "-x"
        names.append(ref)
        packages.append({
            "SPDXID": ref, "name": name, "versionInfo": number, "supplier": supplier, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
            "copyrightText": "NOASSERTION",
            "externalRefs": [
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl},
            ],
        })

    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    lines = []
    for name, number, arch, source, maintainer, licences in debian(root):
        add("deb", name, number, f"pkg:deb/debian/{name}@{number}?arch={arch}&distro=debian-12",
            "Organization: " + re.sub(r"\s*<.*", "", maintainer))
        lines.append(f"{name} {number} (Debian, source {source}): {', '.join(licences) or 'see usr/share/doc/' + name}")
    with open(go_modules, encoding="utf-8") as f:
        text = f.read()
    for path, number, _ in modules(text):
        add("go", path, number or version, f"pkg:golang/{path}@{number or version}", "NOASSERTION")
        lines.append(f"{path} {number or version} (Go module): {licence(cache, path, number)}")
    named = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"director-appliance-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/director-{named}",
        "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: images/director/sbom.py"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": ref}
            for ref in names
        ],
    }
    with open(f"{out}/sbom.spdx.json", "w", encoding="utf-8") as f:
        json.dump(document, f, indent=1)
        f.write("\n")
    with open(f"{out}/licenses.txt", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


main()
