#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the demo and the baseline have in common: the programs of a build, the model, prompts of a given length."""

import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1]).resolve()
KVONCE = BUILD / "src" / "cli" / "kvonce"
LLAMA = BUILD / "engines" / "llama" / "example" / "kvonce-llama"
LIMITS = BUILD / "engines" / "llama" / "example" / "kvonce-llama-limits"
LIBRARY = os.environ["KVONCE_LLAMA_LIB"]
MODEL = os.environ["KVONCE_LLAMA_MODEL"]
PROMPT_TOKENS = int(os.environ.get("KVONCE_DEMO_TOKENS", 2000))
BLOCK = 64


def say(text):
    print("\n== " + text, flush=True)


def output(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit("%s: exit %d: %s" % (pathlib.Path(str(command[0])).name, done.returncode, done.stderr.strip()))
    return done.stdout


def arguments(store, prompt, more):
    return [LLAMA, "run", "--model", MODEL, "--store", store, "--prompt-file", prompt, "--json", *more]


def answer(store, prompt, *more):
    return json.loads(output(*arguments(store, prompt, more)))


def answer_and_kill(store, prompt):
    """The figures come before the store is closed; then the process is killed, with a write under way."""
    command = [str(word) for word in arguments(store, prompt, ["--cold"])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    line = process.stdout.readline()
    if not line or process.poll() is not None:
        sys.exit("the first answer failed: exit %s" % process.wait())
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        sys.exit("the process ended before it could be killed")
    return json.loads(line)


def count(folder, text, *more):
    path = folder / "count.txt"
    path.write_text(text)
    return int(output(LLAMA, "count", "--model", MODEL, "--prompt-file", path, *more))


def prompts(folder, questions):
    """One prompt a question: as much of the docs as makes the first one PROMPT_TOKENS long, then the question."""
    text = "".join((ROOT / "docs" / name).read_text() for name in ("architecture.md", "rules.md", "operations.md"))
    form = "%s\n\nAnswer from the text above. %s"
    ask = count(folder, form % ("", questions[0]))
    size = 4 * PROMPT_TOKENS
    for _ in range(4):  # tokens a byte differ little along the text
        found = count(folder, form % (text[:size], questions[0])) - ask
        size = min(len(text), size * (PROMPT_TOKENS - ask) // max(1, found))
    document = text[:size].rsplit(" ", 1)[0]
    paths = []
    for number, question in enumerate(questions):
        paths.append(folder / ("prompt%d.txt" % number))
        paths[-1].write_text(form % (document, question))
    return paths
