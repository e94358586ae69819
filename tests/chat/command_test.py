#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce-llama with a real library and a real model (tools/llama-parts.sh): answers, restores, what it says when
something is missing, and every example of its manual page.

    command_test.py KVONCE_LLAMA KVONCE [TEST]
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))

from runner import run_tests  # noqa: E402

COMMAND, KVONCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PAGE = (ROOT / "docs" / "man" / "kvonce-llama.1.scd").read_text()
BLOCK = 64
MODEL = None  # set by main()


def llama(*arguments, code=0, stdin="", **environment):
    """stdout and stderr; where it fails, the one line that says why."""
    done = subprocess.run([COMMAND, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                          errors="replace", timeout=600, env=dict(os.environ, **environment))
    context = "%s: exit %d\n%s\n%s" % (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    assert done.returncode == code, context
    if code != 0:
        assert done.stderr.startswith("kvonce-llama: ") and done.stderr.count("\n") == 1, context
        return done.stderr
    return done.stdout, done.stderr


def store(folder):
    return "dram:64M,disk:%s:256M" % (folder / "store")


def prompt(folder, tokens=150, name="prompt.txt"):
    """A text of about so many tokens."""
    (folder / name).write_text((ROOT / "docs" / "tiers.md").read_text()[:3 * tokens])
    return folder / name


def answer(folder, path, *more, tiers=None):
    done = llama("run", "--model", MODEL, "--store", tiers or store(folder), "--prompt-file", path, "-n", 12, "--json",
                 *more)
    return json.loads(done[0])


def test_the_second_answer_is_restored_and_the_same(folder):
    path = prompt(folder)
    cold, warm = answer(folder, path), answer(folder, path)
    whole = (cold["prompt_tokens"] - 1) // BLOCK * BLOCK
    assert cold["restored_tokens"] == 0 and warm["restored_tokens"] == whole >= 2 * BLOCK, (cold, warm)
    assert cold["tokens"] == warm["tokens"] and cold["text"] == warm["text"] and len(cold["tokens"]) > 3, (cold, warm)
    assert warm["saved_blocks"] == 0 and warm["why"] == "complete" and warm["form"] == 1, warm
    assert 0 < warm["prefill_s"] <= warm["ttft_s"] <= warm["total_s"], warm
    again = answer(folder, path, "--cold")
    assert again["restored_tokens"] == 0 and again["tokens"] == cold["tokens"] and again["saved_blocks"] == 0, again
    print("%d of %d tokens restored, %d answer tokens identical" % (whole, cold["prompt_tokens"], len(cold["tokens"])))


def test_other_batches_blocks_and_contexts(folder):
    path = prompt(folder)
    cold = answer(folder, path)
    for more, restored in ((["--context", 1024], True), (["--batch", 100], True), (["--block", 32], False)):
        done = answer(folder, path, *more)
        assert (done["restored_tokens"] >= 2 * BLOCK) == restored, (more, done)
    # Batches shorter than a block end on blocks, too.
    first, second = (answer(folder, path, "--batch", 48, tiers="dram:64M,disk:%s:256M" % (folder / "short"))
                     for _ in range(2))
    assert first["restored_tokens"] == 0 and second["restored_tokens"] >= 2 * BLOCK, (first, second)
    assert first["tokens"] == second["tokens"], (first, second)
    smaller = answer(folder, path, "--block", 32)
    assert smaller["restored_tokens"] == (cold["prompt_tokens"] - 1) // 32 * 32, smaller


def test_a_killed_process_leaves_what_it_had_saved(folder):
    """Killed as its answer begins: the prompt's first blocks went to the disk while the later ones were computed."""
    path = prompt(folder, 450)
    words = ["run", "--model", MODEL, "--store", store(folder), "--prompt-file", path, "--batch", "64", "-n", "500"]
    process = subprocess.Popen([COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.read(1) != b""
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended too early"
    warm = answer(folder, path, "--batch", "64")
    cold = answer(folder, path, "--batch", "64", "--cold", tiers="dram:64M,disk:%s:256M" % (folder / "other"))
    assert cold["tokens"] == warm["tokens"] and warm["restored_tokens"] >= BLOCK, (cold, warm)
    verified = subprocess.run([KVONCE, "verify", str(folder / "store")], capture_output=True, text=True)
    assert verified.returncode == 0 and " 0 bad" in verified.stdout, verified
    print("after the kill %d of %d tokens restored" % (warm["restored_tokens"], warm["prompt_tokens"]))


def test_a_chat_restores_its_earlier_turns(folder):
    words = ["chat", "--model", MODEL, "--store", store(folder), "--prompt-file", prompt(folder), "-n", 8]
    out, report = llama(*words, stdin="What is a tier?\nAnd a wrapper?\n")
    restored = [int(number) for number in re.findall(r"restored (\d+) of", report)]
    assert len(restored) == 2 and restored[0] == 0 and restored[1] >= 2 * BLOCK, report
    assert out.count("\n") >= 2, out
    _, report = llama(*words, stdin="What is a tier?\n\nAnd a wrapper?")
    later = [int(number) for number in re.findall(r"restored (\d+) of", report)]
    assert later[0] >= 2 * BLOCK and later[1] >= restored[1], report


def test_a_store_in_memory_alone_is_enough_for_a_chat(folder):
    out, report = llama("chat", "--model", MODEL, "--store", "dram:64M", "--prompt-file", prompt(folder), "-n", 4,
                        stdin="What is a tier?\nAnd a wrapper?\n")
    restored = [int(number) for number in re.findall(r"restored (\d+) of", report)]
    assert out and len(restored) == 2 and restored[1] >= 2 * BLOCK, report
    assert "not everything" not in report, report


def test_raw_and_standard_input(folder):
    count = int(llama("count", "--model", MODEL, "--prompt-file", "-", stdin="Name three colours.")[0])
    raw = int(llama("count", "--model", MODEL, "--prompt-file", "-", "--raw", stdin="Name three colours.")[0])
    assert raw < count, (raw, count)
    out, report = llama("run", "--model", MODEL, "--store", store(folder), "--prompt-file", "-", "--raw", "-n", 2,
                        stdin="Name three colours.")
    assert out and "restored 0 of %d tokens" % raw in report, (out, report)


def test_what_is_missing_is_one_line(folder):
    path = prompt(folder, 20)
    good = ["run", "--model", MODEL, "--store", store(folder), "--prompt-file", path]
    said = llama(*good, code=2, KVONCE_LLAMA_LIB="/nonexistent/libllama.so")
    assert "libllama.so" in said and "tools/llama-parts.sh" in said and "KVONCE_LLAMA_LIB" in said, said
    said = llama(*good, code=2, KVONCE_LLAMA_LIB="libm.so.6")
    assert "has no llama_" in said and "another engine" in said, said
    for words, says in [
            (["run"], "needs --model, --store, --prompt-file"),
            (["frob"], "no command frob"),
            ([*good, "--threads", "0"], "whole number"),
            ([*good, "-n", "8x"], "whole number"),
            ([*good, "extra"], "one argument too many"),
            ([*good, "--frob"], "frob"),
            ([*good, "--threads"], "threads"),
            ([*good, "-n", "5000"], "--context"),
            (["run", "--model", path, "--store", store(folder), "--prompt-file", path], "GGUF"),
            (["run", "--model", MODEL, "--store", "dram:64M,tape:/x", "--prompt-file", path], "tape"),
            (["run", "--model", MODEL, "--store", store(folder), "--prompt-file", folder / "none"], "No such file"),
            (["run", "--model", MODEL, "--store", store(folder), "--prompt-file", MODEL], "not a text"),
            (["run", "--model", MODEL, "--store", store(folder), "--prompt-file", "/dev/zero"], "not a text"),
            (["chat", "--model", MODEL, "--store", store(folder), "--cold"], "--cold is for run")]:
        said = llama(*words, code=2)
        assert says in said, (words, said)
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, *map(str, good), "-n", "2"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=600)
    assert done.returncode == 2 and "standard output" in done.stderr, done


def test_the_manual_page_has_every_option_and_its_examples_run(folder):
    printed = set(re.findall(r"^  (-[-a-z]+)", llama("--help")[0], re.M))
    described = set(re.findall(r"\*(-[-a-z]+)\*", PAGE.split("# OPTIONS")[1].split("# EXIT")[0]))
    assert printed == described and len(printed) >= 12, printed ^ described
    fields = set(re.findall(r"\*([a-z]+_[a-z]+|why|text|tokens|layout|form)\*", PAGE.split("*--json*")[-1]))
    assert fields == set(answer(folder, prompt(folder, 20))), fields
    (folder / "bin").mkdir()
    for name, program in ("kvonce-llama", COMMAND), ("kvonce", KVONCE):
        (folder / "bin" / name).symlink_to(program)
    (folder / "m.gguf").symlink_to(MODEL)
    for name in "question.txt", "handbook.txt":
        prompt(folder, 70, name)
    example = re.search(r"# EXAMPLES\n+```\n(.*?)```", PAGE, re.S).group(1)
    example = re.sub(r"export .*\n", "", example).replace("/tmp/kv", str(folder / "kv"))
    done = subprocess.run(["bash", "-e", "-c", example], cwd=folder, capture_output=True, text=True, input="Hello.\n",
                          env=dict(os.environ, PATH="%s:%s" % (folder / "bin", os.environ["PATH"])), timeout=600)
    assert done.returncode == 0 and "llama-" in done.stdout, done


def main():
    global MODEL
    found = subprocess.run([ROOT / "tools" / "llama-parts.sh"], capture_output=True, text=True)
    if found.returncode != 0:
        print("skipped: " + found.stderr.strip())
        sys.exit(77)
    for name, value in re.findall(r"(\w+)='(.*)'", found.stdout):
        os.environ[name] = value
    MODEL = os.environ["KVONCE_LLAMA_MODEL"]
    run_tests(sys.modules[__name__], *sys.argv[3:4])


if __name__ == "__main__":
    main()
