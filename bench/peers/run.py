#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce beside other ways to keep the same blocks: rounds outside, systems inside, ratios to a limit of the round.

run.py PROGRAM [PYTHON]      PROGRAM: peers, built; PYTHON: of the environment with LMCache and Mooncake

--quick          fewer bytes and rounds: about three minutes instead of fifteen
--json FILE      everything that was measured
--from FILE      measures nothing: prints what is in a file of --json
--write          puts tables and plot into docs/peers.md, docs/peers.svg and README.md
--memory DIR     on a file system in memory (/dev/shm)
--disk DIR       on the disk (/var/tmp)
"""

import argparse
import json
import os
import pathlib
import platform
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import figures
import report

HERE = pathlib.Path(__file__).resolve().parent
SIZES = [5 << 20, 1 << 20, 64 << 10]
SECONDS = 120  # for one command; more is a hang
NO_PYTHON = "none"


class Worker:
    """A process that measures on command: peers.c, or a script over serve.py. Where it cannot run, answers say why."""

    def __init__(self, command):
        self.command, self.systems, self.why = command, [], None
        self.process, self.place = None, None

    def start(self):
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True
            )
        except OSError as error:
            self.give_up("there is no environment for it" if self.command[0] == NO_PYTHON else str(error))
            return
        self.buffer, self.systems = b"", []
        while True:
            answer = self.read()
            if "system" not in answer:
                break
            self.systems.append(answer)
        if not answer.get("ready"):
            self.give_up(answer["missing"])

    def give_up(self, why):
        self.why, self.process = why, None

    def read(self):
        deadline = time.monotonic() + SECONDS
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            ready = select.select([self.process.stdout], [], [], max(left, 0))[0]
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not data:
                return self.lost("no answer within %d s" % SECONDS if not ready else "its process ended")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        try:
            return json.loads(line.decode(errors="replace"))
        except ValueError:
            return self.lost("its answer is no JSON")

    def lost(self, why):
        self.kill()
        self.log.seek(0)
        said = self.log.read().decode(errors="replace").strip().splitlines()
        return {"missing": why + (": " + said[-1][:160] if said else "")}

    def kill(self):
        """It and all that it started, as far as they stay in its session; back when they are gone."""
        if self.process is None:
            return
        group, self.process = self.process, None
        try:
            os.killpg(group.pid, signal.SIGKILL)
            group.wait()
            for _ in range(500):
                os.killpg(group.pid, 0)
                time.sleep(0.01)
        except ProcessLookupError:
            group.wait()

    def go_to(self, place):
        self.place = place

    def ask(self, verb, what, system):
        if self.why:
            return {"missing": self.why}
        if self.process is None:
            self.start()
            if self.process is None:
                return {"missing": self.why}
        try:
            self.process.stdin.write(("place - %s\n%s %s %s\n" % (self.place, verb, what, system)).encode())
            self.process.stdin.flush()
        except OSError:
            return self.lost("its process ended")
        return self.read()

    def end(self):
        """When it has been answered: it ends by itself."""
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                pass
            self.kill()


def missing_systems(names, why):
    return [
        {"system": name, "durability": "", "checks": "", "persistent": True, "alone": True, "why": why}
        for name in names
    ]


EXPECTED = {
    "peer_lmcache.py": ["LMCache L1", "LMCache fs", "LMCache fs_native", "LMCache raw_block"],
    "peer_mooncake.py": ["Mooncake, in process", "Mooncake, TCP loopback"],
}


def start_workers(options, workers):
    """Fills the list of workers; (worker, system) pairs."""
    workers.append(Worker([options.program, str(options.mib)]))
    workers[0].start()
    if workers[0].why:
        give_up("%s: %s" % (options.program, workers[0].why))
    for script, names in EXPECTED.items():
        worker = Worker([options.python or NO_PYTHON, str(HERE / script), str(options.mib)])
        workers.append(worker)
        worker.start()
        if worker.why:
            worker.systems = missing_systems(names, worker.why)
    return [(worker, system) for worker in workers for system in worker.systems]


def give_up(why):
    sys.exit("bench-peers: %s" % why)


def note(text):
    print(text, file=sys.stderr, flush=True)


def measure_rounds(pairs, size, seconds, rounds_max):
    """Rounds while another one fits, one at least; what each system answered, by name."""
    answers, begin = {system["system"]: [] for _, system in pairs}, time.monotonic()
    order = random.Random(size)  # the same in every run; no system always follows the same other one
    for number in range(rounds_max):
        for worker, system in order.sample(pairs, len(pairs)):
            answers[system["system"]].append(worker.ask("measure", size, system["system"]))
        taken = time.monotonic() - begin
        note("    round %d: %.0f s" % (number + 1, taken))
        if taken + taken / (number + 1) > seconds:
            break
    return answers


def measure(pairs, place, deadline, cells_left, rounds_max):
    rows = []
    for i, size in enumerate(SIZES):
        note("%s blocks on %s" % (report.size_text(size), report.PLACES[place]))
        seconds = (deadline - time.monotonic()) / (cells_left - i)
        answers = measure_rounds(pairs, size, seconds, rounds_max)
        for _, system in pairs:
            for operation in figures.OPERATIONS:
                rows.append(
                    figures.row(system, operation, place, size, answers[system["system"]], answers[figures.RAW])
                )
    return rows


def try_faults(pairs, place):
    rows = []
    for worker, system in pairs:
        for fault in figures.FAULTS:
            if system["persistent"]:
                outcome = worker.ask("fault", fault, system["system"])
            else:
                outcome = {"missing": "keeps nothing when its process ends"}
            rows.append(figures.fault_row(system, fault, place, outcome))
    return rows


# ---- The machine ----


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return "unknown"


def versions(python):
    found = {}
    for name in ("liblmdb0", "librocksdb7.8", "redis-server"):
        found[name] = first_line("dpkg-query", "-W", "-f", "${Version}\n", name)
    for name in ("lmcache", "lmcache-rust-raw-block-io", "mooncake-transfer-engine-non-cuda", "torch"):
        found[name] = first_line(python or "false", "-c", "import importlib.metadata as m; print(m.version(%r))" % name)
    return found


def machine(options, places):
    cpu = [
        line.split(":", 1)[1].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) * 1024
    kinds = {name: first_line("findmnt", "-n", "-o", "FSTYPE", "-T", path) for name, path in places.items()}
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "compiler": first_line("cc", "--version"),
        "python": platform.python_version(),
        "file_systems": kinds,
        "load_before": os.getloadavg(),
        "versions": versions(options.python),
        "working_set_bytes": options.mib << 20,
        "batch": figures.BATCH,
    }


def check_places(options):
    """What would make the headings of the tables untrue, or each system fail for the same reason."""
    needed = 3 * options.mib + 128
    for name in report.PLACES:
        path = getattr(options, name)
        if not os.path.isdir(path) or not os.access(path, os.W_OK):
            give_up("--%s %s: not a folder that can be written to" % (name, path))
        kind = first_line("findmnt", "-n", "-o", "FSTYPE", "-T", path)
        if (kind == "tmpfs") != (name == "memory"):
            give_up("--%s %s: its file system is %s, not %s" % (name, path, kind, report.PLACES[name]))
        free = shutil.disk_usage(path).free >> 20
        if free < needed:
            give_up("--%s %s: %d MiB are free, %d are needed" % (name, path, free, needed))


def run(options):
    begin, places, workers, rows = time.monotonic(), {}, [], []
    check_places(options)
    try:
        for name in report.PLACES:
            places[name] = tempfile.mkdtemp(prefix="kvonce-peers-", dir=getattr(options, name))
        result = {"machine": machine(options, places)}
        pairs = start_workers(options, workers)
        deadline, cells_left = begin + options.seconds, len(SIZES) * len(places)
        for name in places:
            for worker in workers:
                worker.go_to(os.path.join(places[name], "w"))
            rows += measure(pairs, name, deadline, cells_left, options.rounds_max)
            cells_left -= len(SIZES)
        note("faults")  # on the disk, where the workers are
        rows += try_faults(pairs, "disk")
        for worker in workers:
            worker.end()
    finally:
        for worker in workers:
            worker.kill()
        for path in places.values():
            shutil.rmtree(path, ignore_errors=True)
    result["machine"].update(load_after=os.getloadavg(), seconds=round(time.monotonic() - begin))
    return {**result, "systems": [system for _, system in pairs], "rows": rows}


def measured_before(path):
    try:
        result = json.loads(pathlib.Path(path).read_text())
        report.text(result)
        return result
    except (ValueError, KeyError, TypeError, AttributeError):
        give_up("%s: nothing that --json wrote" % path)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.error = give_up
    parser.add_argument("program", nargs="?")
    parser.add_argument("python", nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    for name in ("--json", "--from"):
        parser.add_argument(name, dest=name[2:] + "_file")
    parser.add_argument("--memory", default="/dev/shm")
    parser.add_argument("--disk", default="/var/tmp")
    options = parser.parse_args()
    options.mib, options.rounds_max, options.seconds = (120, 2, 150) if options.quick else (240, 5, 840)
    if not options.from_file and not options.program:
        parser.error("which program?")
    if options.json_file and not os.path.exists(options.json_file):  # to fail now, not at the end
        open(options.json_file, "x").close()
        os.unlink(options.json_file)
    result = measured_before(options.from_file) if options.from_file else run(options)
    if options.json_file:
        pathlib.Path(options.json_file).write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    print(report.text(result))
    if options.write:
        report.write(result, HERE.parent.parent)
    if report.wrong(result):
        give_up("wrong bytes came back: %s" % "; ".join(report.wrong(result)))


def interrupted(number, _):
    """Once: a second signal must not end the cleaning up."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

if __name__ == "__main__":
    for one in SIGNALS:
        if signal.getsignal(one) != signal.SIG_IGN:  # nohup
            signal.signal(one, interrupted)
    try:
        main()
    except OSError as error:
        give_up(error)
