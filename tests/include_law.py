#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which folder may use which: refuses an #include that the table below does not allow.
A folder is a module; the check also proves that it can fail, on copies with a planted include."""

import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Module: modules that it may use besides itself and the public header, and foreign libraries.
LAW = {
    "base": ([], ["openssl"]),
    "block": (["base"], ["xxhash"]),
    "index": (["base", "block"], []),
    "place": (["base", "block"], []),
    "ledger": (["base", "block"], []),
    "move": (["base", "block"], ["liburing"]),
    "tier": (["base", "block", "move"], ["xxhash"]),
    "store": (["base", "block", "index", "place", "ledger", "move", "tier"], []),
    "cli": ([], ["jansson", "liburing", "xxhash"]),
}
# Folders outside of src that see the public header only.
OUTSIDE = ["engines", "python"]
FOREIGN = {"openssl": r"openssl/", "xxhash": r"xxhash\.h$", "liburing": r"liburing", "jansson": r"jansson\.h$"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def includes(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1) == '"', found.group(2)


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h", ".cc", ".cpp", ".hpp"))


def foreign_problem(name, allowed):
    for library, pattern in FOREIGN.items():
        if re.match(pattern, name) and library not in allowed:
            return "uses " + library
    return None


def resolve(root, path, name):
    """The folder path, relative to src, that a quoted include names; None for the public header."""
    if name == "kvonce.h":
        return None
    for base in (path.parent, root / "src"):
        target = (base / name).resolve()
        if target.is_file() and (root / "src").resolve() in target.parents:
            return target.relative_to((root / "src").resolve()).parts
    return (name,)


def tier_problem(user, used):
    """A tier is a folder in src/tier; only the list of tiers beside them knows them."""
    if used[0] != "tier" or len(used) <= 2:
        return None
    if user[0] != "tier":
        return "knows a single tier"
    if len(user) > 2 and user[1] != used[1]:
        return "a tier knows another"
    return None


def problem(root, path, quoted, name):
    user = path.relative_to(root / "src").parts
    modules, libraries = LAW[user[0]]
    if not quoted:
        if name.split("/")[0] in LAW and (root / "src" / name).is_file():
            return "in <>, a header of this project"
        return foreign_problem(name, libraries)
    used = resolve(root, path, name)
    if used is None:
        return None
    if used[0] not in LAW:
        return foreign_problem(name, libraries) or "no such header in the table"
    if used[0] != user[0] and used[0] not in modules:
        return "may not use " + used[0]
    return tier_problem(user, used)


def check(root):
    """Lines of what is wrong."""
    wrong = []
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        if folder.name not in LAW:
            wrong.append("src/%s: a folder that the table does not have" % folder.name)
            continue
        for path in sources(folder):
            for number, quoted, name in includes(path):
                what = problem(root, path, quoted, name)
                if what:
                    wrong.append("%s:%d: %s: %s" % (path.relative_to(root), number, name, what))
    for folder in OUTSIDE:
        for path in sources(root / folder) if (root / folder).is_dir() else []:
            for number, quoted, name in includes(path):
                if quoted and name != "kvonce.h" and not (path.parent / name).is_file() or "../src" in name:
                    wrong.append("%s:%d: %s: not the public header" % (path.relative_to(root), number, name))
    for number, quoted, name in includes(root / "include" / "kvonce.h"):
        if quoted or "/" in name:
            wrong.append("include/kvonce.h:%d: %s: not libc" % (number, name))
    return wrong


PLANTED = [
    ("src/base/planted.c", '#include "block/record.h"'),
    ("src/base/planted.c", "#include <xxhash.h>"),
    ("src/block/planted.c", '#include "../store/planted.h"'),
    ("src/place/planted.c", '#  include "ledger/planted.h"'),
    ("src/index/planted.c", "#include <base/env.h>"),
    ("src/tier/dram/planted.c", '#include "tier/disk/planted.h"'),
    ("src/tier/dram/planted.c", '#include "../disk/planted.h"'),
    ("src/store/planted.c", '#include "tier/disk/planted.h"'),
    ("src/cli/planted.c", '#include "base/status.h"'),
    ("src/other/planted.c", ""),
    ("engines/planted.c", '#include "base/status.h"'),
]
TARGETS = ["src/block/record.h", "src/store/planted.h", "src/ledger/planted.h", "src/tier/disk/planted.h"]


def fails_when_planted(path, line):
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name).resolve()
        for folder in ("src", "include"):
            shutil.copytree(ROOT / folder, copy / folder)
        for target in TARGETS:
            (copy / target).parent.mkdir(parents=True, exist_ok=True)
            (copy / target).touch()
        before = len(check(copy))
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(line + "\n")
        return len(check(copy)) == before + 1


def main():
    wrong = check(ROOT)
    for path, line in PLANTED:
        if not fails_when_planted(path, line):
            wrong.append("not noticed when planted in %s: %s" % (path, line))
    print("\n".join(wrong) if wrong else "every include is allowed; %d planted ones were noticed" % len(PLANTED))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
