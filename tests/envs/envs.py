# SPDX-License-Identifier: Apache-2.0
"""What the tests of environments share: the driver, other users, file systems that are mounted for a test.

    THIS_test.py KVONCE [TEST] DRIVER
"""

import os
import pathlib
import resource
import subprocess
import sys

DRIVER = os.path.abspath(sys.argv.pop())
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "disk"))

from files import (KVONCE, PAGE, all_files, copy_of, kvonce, listing, main, patch, read_with_reader,  # noqa: E402,F401
                   replay, sealed, stat, super_copies, super_field, super_set, synth, verify)

NOBODY = 65534
AUTO, URING, THREADS = 0, 1, 2
READ_ONLY = 2
BLOCK = 65536
OURS = {"lock", "super", "data", "policy", "checkpoint", "ledger.a", "ledger.b", "spaces.a", "spaces.b"}


class Skipped(Exception):
    pass


def root_only(test):
    """Marks a test that needs root: without it the test says so and is skipped."""
    def run(folder):
        if os.getuid() != 0:
            raise Skipped("not root")
        return test(folder)
    run.__name__ = test.__name__
    return run


def limits_of(limits):
    def apply():
        for which, value in limits.items():
            resource.setrlimit(which, (value, value))
    return apply


class Driver:
    """One process with a store; ends with it. `limits`: {resource.RLIMIT_..: value}."""

    def __init__(self, user=None, limits=None, wrap=(), umask=-1, **environment):
        how = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.process = subprocess.Popen([*wrap, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, umask=umask,
                                        env=dict(os.environ, **environment),
                                        preexec_fn=limits_of(limits) if limits else None, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def __call__(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the driver ended with %s in %s: %s" % (self.process.wait(), words, self.process.stderr.read())
        return line.strip()

    def open(self, tiers, engine=AUTO, flags=0, block=BLOCK, space=True):
        said = self("open", tiers, block, engine, flags)
        assert said == "KVO_OK", said
        if space:
            assert self("space", "s", block, "m") == "KVO_OK"
        return self

    def refused(self, tiers, status, *words, engine=AUTO, flags=0, block=BLOCK):
        said = self("open", tiers, block, engine, flags)
        check_refusal(said, status, *words)

    def stat(self):
        return dict(word.split("=") for word in self("stat").split())

    def end(self):
        """All of it in order. What the library logged, line by line."""
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, (self.process.returncode, out, err)
        return err.splitlines()

    def kill(self):
        self.process.kill()
        self.process.wait()


def check_refusal(said, status, *words):
    name, _, text = said.partition(" ")
    assert name == status and all(str(word) in text for word in words) and text.count("\n") <= 1, said


def mount(folder, *words):
    """Mounts at `folder`, created, with the words of mount(8); unmounted when the process ends. Skips where the kernel
    cannot."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *map(str, words), str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped("mount %s: %s" % (" ".join(map(str, words)), done.stderr.strip()))
    return folder


def unmount(folder):
    subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder, how):
    """rw or ro, though files are open for writing: those of a bind mount, or of the file system itself, by force."""
    words = ["mount", "-o", "remount," + how, str(folder)]
    return subprocess.run(words, capture_output=True, text=True).returncode == 0


def run_all(module):
    """harness.main(), for tests that may find that this machine cannot do it: they say so, and if all do, 77."""
    counts = {"ran": 0, "skipped": 0}

    def guarded(test):
        def run(folder):
            try:
                test(folder)
                counts["ran"] += 1
            except Skipped as why:
                counts["skipped"] += 1
                print("skipped %s: %s" % (test.__name__, why))
        return run
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            setattr(module, name, guarded(test))
    try:
        main(module)
    except SystemExit as end:
        sys.exit(77 if end.code == 0 and counts["ran"] == 0 else end.code)
