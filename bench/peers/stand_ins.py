# SPDX-License-Identifier: Apache-2.0
"""Empty libraries in place of CUDA's, which PyPI's torch for Linux is linked with and which no call here reaches.

    stand_ins.py        with the Python of the environment that has torch

The loader asks for the files, for the version names that torch's libraries were linked with, and for data. Functions
without a version are bound when they are called first (RTLD_LAZY), so none has to be there.
"""

import pathlib
import re
import subprocess
import sysconfig
import tempfile

LIBRARIES = pathlib.Path(sysconfig.get_paths()["purelib"], "torch", "lib")
CUDA = re.compile(r"lib(cu(blas|blasLt|dnn|fft|file|pti|solver|sparse|sparseLt)|nccl|nvrtc|nvshmem_host)\.so\.\d+")


def read(option, library):
    return subprocess.run(["readelf", option, "-W", library], capture_output=True, text=True, check=True).stdout


def needed(library):
    """The CUDA libraries that a library is linked with, each with its version names."""
    found, current = {}, None
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", read("-d", library)):
        found.setdefault(name, set())
    for file, name in re.findall(r"File: (\S+)|Name: (\S+)", read("-V", library)):
        if file:
            current = found.setdefault(file, set())
        elif current is not None:
            current.add(name)
    return {name: tags for name, tags in found.items() if CUDA.fullmatch(name)}


def symbols(library):
    """(name, version name) of what it expects elsewhere."""
    return re.findall(r"UND (\w+)@(\S+) \(", read("--dyn-syms", library))


def make(name, tags, work):
    """`tags`: version name to symbols. None of them is ever called or read."""
    script, source = pathlib.Path(work, "versions"), pathlib.Path(work, "empty.c")
    script.write_text(
        "".join("%s { %s };\n" % (tag, "".join("%s; " % one for one in sorted(names))) for tag, names in tags.items())
    )
    source.write_text(
        "typedef int empty;\n" + "".join("char %s[8];\n" % one for names in tags.values() for one in sorted(names))
    )
    subprocess.run(
        [
            "cc",
            "-shared",
            "-nostdlib",
            "-fno-builtin",
            "-Wl,-soname," + name,
            *(["-Wl,--version-script=%s" % script] if tags else []),
            "-o",
            str(LIBRARIES / name),
            str(source),
        ],
        check=True,
    )


def main():
    wanted, expected = {}, {}
    for library in sorted(LIBRARIES.glob("*.so")):
        for name, tags in needed(library).items():
            wanted.setdefault(name, set()).update(tags)
        for name, tag in symbols(library):
            expected.setdefault(tag, set()).add(name)
    with tempfile.TemporaryDirectory() as work:
        for name, tags in wanted.items():
            if not (LIBRARIES / name).exists():
                make(name, {tag: expected.get(tag, set()) for tag in tags}, work)


main()
