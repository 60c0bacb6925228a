#!/usr/bin/env python3
"""Checks every dependency of Cargo.lock against deny.toml: licences, banned crates, duplicates, sources.

Reads the part of deny.toml that this workspace uses, with the meaning that it has for cargo-deny, so that the
check needs Python 3.11 and nothing else. An entry of deny.toml that no longer applies is a complaint too.
"""
import json
import pathlib
import re
import subprocess
import sys
import tomllib

root = pathlib.Path(__file__).parent.parent
rules = tomllib.loads((root / "deny.toml").read_text())
command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
packages = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)["packages"]
complaints = []


def allowed(expression, licences, used):
    """Whether `licences` satisfy an SPDX expression, or the older form with a slash; adds those to `used`."""
    tokens = re.findall(r"[()]|[^\s()]+", re.sub(r"\s*/\s*", " OR ", expression))

    def either():
        result = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            result = both() or result
        return result

    def both():
        result = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            result = one() and result
        return result

    def one():
        token = tokens.pop(0)
        if token == "(":
            result = either()
            tokens.pop(0)
            return result
        if tokens and tokens[0] == "WITH":
            token = " ".join([token, tokens.pop(0), tokens.pop(0)])
        if token in licences:
            used.add(token)
        return token in licences

    return either()


licences, used = set(rules["licenses"]["allow"]), set()
for package in packages:
    if not package["license"]:
        complaints.append(f"{package['name']} {package['version']} states no licence")
    elif not allowed(package["license"], licences, used):
        complaints.append(f"{package['name']} {package['version']}: the licence {package['license']} is not allowed")
complaints += [f"no dependency is under {licence}: take it out of deny.toml" for licence in sorted(licences - used)]

banned = {rule["crate"] for rule in rules["bans"]["deny"]}
complaints += [f"{package['name']} is banned" for package in packages if package["name"] in banned]


def matches(package, crate):
    """Whether a package is `name@version`, the version given as far as it matters."""
    name, _, version = crate.partition("@")
    return package["name"] == name and (package["version"] + ".").startswith(version + ".")


skips = [rule["crate"] for rule in rules["bans"]["skip"]]
kept = [package for package in packages if not any(matches(package, skip) for skip in skips)]
versions = {}
for package in kept:
    versions.setdefault(package["name"], set()).add(package["version"])
complaints += [f"two versions of {name}: {', '.join(sorted(v))}" for name, v in versions.items() if len(v) > 1]
for skip in skips:
    if not any(matches(package, skip) for package in packages):
        complaints.append(f"no dependency is {skip}: take it out of deny.toml")

sources = {package["source"] for package in packages if package["source"]}
complaints += [f"a dependency comes from {source}" for source in sorted(sources) if not source.startswith("registry+")]
if len(sources) > 1:
    complaints.append(f"dependencies come from several sources: {', '.join(sorted(sources))}")

for complaint in complaints:
    print(complaint, file=sys.stderr)
print(f"{len(packages)} packages, {len(complaints)} complaints")
sys.exit(bool(complaints))
