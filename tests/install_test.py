#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make install` as the README describes it: what lies where, and that the README's program compiles against it,
warning-free, shared and static, and prints what the README says."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
HEADER = (ROOT / "include" / "kvonce.h").read_text()
VERSION = ".".join(re.search(r"KVO_VERSION_%s (\d+)" % part, HEADER).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
FOREIGN = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PREFIX", "LIBDIR", "DESTDIR", "LD_LIBRARY_PATH")
STRICT = "-std=c11 -O2 -Wall -Wextra -Werror -pedantic"

# The program, its command, and what that prints.
SOURCE = re.search(r"```c\n(.*?)```", README, re.S).group(1)
COMMAND, OUTPUT = re.search(r"```\n\$ (cc example\.c .*)\n([^`]*)```", README).groups()


def run(command, **variables):
    """What a shell command prints, in the user's environment without what a surrounding make or test has put there."""
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    done = subprocess.run(command, shell=True, text=True, capture_output=True, env={**environment, **variables})
    assert done.returncode == 0, "\n".join((command, done.stdout, done.stderr))
    return done.stdout


def make(target, build, **variables):
    words = ["%s='%s'" % item for item in dict(variables, RELEASE=build).items()]
    run("make -C '%s' %s %s" % (ROOT, target, " ".join(words)))


def files_below(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def installed_files(libdir="lib"):
    pages = [page.stem for page in (ROOT / "docs" / "man").glob("*.scd")] if shutil.which("scdoc") else []
    return ({"bin/kvonce", "bin/kvonce-llama", "include/kvonce.h", "include/kvonce_llama.h"}
            | {"share/man/man%s/%s" % (page[-1], page) for page in pages}
            | {"%s/%s" % (libdir, name) for name in ("libkvonce.a", "libkvonce.so", "libkvonce.so.0",
                                                    "libkvonce.so." + VERSION, "pkgconfig/kvonce.pc",
                                                    "libkvonce-llama.so", "libkvonce-llama.so.0",
                                                    "libkvonce-llama.so." + VERSION, "pkgconfig/kvonce-llama.pc")})


def check_tree(top, prefix, libdir="lib"):
    assert files_below(top) == installed_files(libdir), files_below(top) ^ installed_files(libdir)
    assert (top / "include" / "kvonce.h").read_text() == HEADER
    assert run("'%s/bin/kvonce' --version" % top).split()[-1] == VERSION
    for page in (top / "share").rglob("kvonce*"):
        assert page.is_dir() or ".TH " in page.read_text(), page

    library = top / libdir / "libkvonce.so"
    assert library.resolve().name == "libkvonce.so." + VERSION and os.readlink(library) == "libkvonce.so.0"
    dynamic = run("readelf -d '%s'" % library)
    assert re.search(r"SONAME.*\[libkvonce\.so\.0\]", dynamic), dynamic

    # What the shared library needs, the pkg-config file names for the static one.
    paths = {"PKG_CONFIG_PATH": str(top / libdir / "pkgconfig")}
    assert run("pkg-config --variable=prefix kvonce", **paths).strip().replace("\\ ", " ") == str(prefix)
    assert run("pkg-config --modversion kvonce", **paths).strip() == VERSION
    needed = set(re.findall(r"NEEDED.*\[lib(\w+)\.so", dynamic)) - {"c"}
    flags = run("pkg-config --static --libs kvonce", **paths).split()
    assert "crypto" in needed and needed <= {flag[2:] for flag in flags if flag.startswith("-l")}, (needed, flags)
    assert run("pkg-config --libs kvonce", **paths).split()[-1] == "-lkvonce"


def check_program(work, prefix, compiler, flavour, more=""):
    """The README's command, with another compiler and more flags: stores, then finds what it stored."""
    command = COMMAND.replace("cc example.c", "%s %s example.c %s" % (compiler, STRICT, more))
    if flavour == "static":
        command = command.replace("pkg-config", "pkg-config --static").replace(" && ", " -static && ")
    elif flavour == "archive":
        command = command.replace("pkg-config", "pkg-config --static")
        command = command.replace(")", " | sed s/-lkvonce/-l:libkvonce.a/)")
    paths = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    if flavour == "shared":
        paths["LD_LIBRARY_PATH"] = str(prefix / "lib")

    shutil.rmtree(work / "store", ignore_errors=True)
    first = run("cd '%s' && %s" % (work, command), **paths)
    again = run("cd '%s' && ./a.out" % work, **paths)
    assert first == OUTPUT, (command, first)
    assert again != first and again.splitlines()[1:] == first.splitlines()[1:], again
    assert ("libkvonce.so.0" in run("readelf -d '%s/a.out'" % work)) == (flavour == "shared"), command


def write_namesakes(work, prefix):
    """A program's own functions under the name of every internal: whoever calls one of them in error aborts."""
    symbols = run("nm --defined-only '%s/lib/libkvonce.a'" % prefix)
    names = sorted(set(re.findall(r"(?m)^\w+ [a-z] ([a-z]\w*)$", symbols)))
    assert len(names) > 200 and {"store_open", "index_find", "tier_open"} <= set(names), names
    (work / "namesakes.c").write_text("_Noreturn void abort(void);\n" + "".join(
        "void {0}(void);\nvoid {0}(void) {{ abort(); }}\n".format(name) for name in names))


def check_cxx(work, prefix):
    (work / "example.cc").write_text('#include <kvonce.h>\nint main() { return kvo_status_text(KVO_OK)[0] == 0; }\n')
    flags = "-Wall -Wextra -Werror -pedantic $(pkg-config --cflags --libs kvonce)"
    run("cd '%s' && g++ example.cc %s && ./a.out" % (work, flags),
        PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"), LD_LIBRARY_PATH=str(prefix / "lib"))


def main():
    with tempfile.TemporaryDirectory(prefix="kvonce-install-") as work:
        work = pathlib.Path(work)
        build, first, second, stage = (work / name for name in ("build", "first", "second dir", "stage"))
        (work / "example.c").write_text(SOURCE.replace("/tmp/kvonce-example", str(work / "store")))

        make("install", build, PREFIX=first)
        check_tree(first, first)
        write_namesakes(work, first)
        for compiler in filter(shutil.which, ("cc", "clang")):
            check_program(work, first, compiler, "shared")
            for flavour in "shared", "archive", "static":
                check_program(work, first, compiler, flavour, "-fno-builtin namesakes.c")
        check_cxx(work, first)

        # Another prefix holds, and leaves the first one alone.
        make("install", build, PREFIX=second)
        check_tree(second, second)
        check_tree(first, first)

        # Staged, with the libraries elsewhere; and back.
        make("install", build, PREFIX="/usr/local", LIBDIR="lib/elsewhere", DESTDIR=stage)
        check_tree(stage / "usr" / "local", "/usr/local", "lib/elsewhere")
        make("uninstall", build)
        assert not files_below(stage) and files_below(second)


if __name__ == "__main__":
    main()
