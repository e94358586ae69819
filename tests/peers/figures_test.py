#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of bench/peers on given samples: ratios, medians, spreads, what is missing; tables and plot."""

import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))

import figures  # noqa: E402
import report  # noqa: E402

FILES = {"system": "files", "durability": "the page cache", "checks": "nothing", "persistent": True, "alone": True}
MEMORY = {"system": "memory", "durability": "nothing", "checks": "nothing", "persistent": False, "alone": False}
OURS = {"system": report.OURS, "durability": "the file", "checks": "a digest", "persistent": True, "alone": True}
SIZE = 5 << 20


def answer(put, limit, **more):
    return {"put": put, "memcpy_put": limit, "get_warm": 4.0, "memcpy_get": 8.0, **more}


class Rows(unittest.TestCase):
    def test_ratio_is_of_the_same_round(self):
        answers = [answer(1.0, 2.0), answer(9.0, 10.0), answer(3.0, 30.0)]
        row = figures.row(FILES, "put", "memory", SIZE, answers, [{}] * 3)
        self.assertEqual((row["value"], row["least"], row["most"]), (3.0, 1.0, 9.0))
        self.assertEqual((row["ratio_to_limit"], row["ratio_least"], row["ratio_most"]), (0.5, 0.1, 0.9))
        self.assertEqual((row["samples"], row["limit"], row["batch"]), ([1.0, 9.0, 3.0], "memcpy, same process", 8))

    def test_median_of_an_even_number(self):
        self.assertEqual(figures.median([4.0, 1.0, 3.0, 2.0]), 2.5)
        self.assertEqual(figures.median([7.0]), 7.0)

    def test_get_is_compared_with_a_copy_into_the_window(self):
        row = figures.row(FILES, "get_warm", "disk", SIZE, [answer(1.0, 2.0)], [{}])
        self.assertEqual(row["ratio_to_limit"], 0.5)

    def test_disk_operations_are_compared_with_the_raw_file(self):
        answers = [answer(1.0, 2.0, put_sync=3.0, restart_to_first_hit=0.2)]
        raw = [{"put_sync": 6.0, "restart_to_first_hit": 0.1}]
        row = figures.row(FILES, "put_sync", "disk", SIZE, answers, raw)
        self.assertEqual((row["ratio_to_limit"], row["limit"]), (0.5, figures.RAW))
        self.assertEqual(figures.row(FILES, "put_sync", "memory", SIZE, answers, raw)["ratio_to_limit"], 1.5)
        self.assertEqual(
            figures.row(FILES, "restart_to_first_hit", "memory", SIZE, answers, raw)["ratio_to_limit"], 2.0
        )

    def test_bytes_are_a_ratio_already(self):
        row = figures.row(
            FILES, "written_bytes_per_payload_byte", "disk", SIZE, [{"written_bytes_per_payload_byte": 1.25}], [{}]
        )
        self.assertEqual((row["ratio_to_limit"], row["unit"]), (1.25, "ratio"))

    def test_processor_time_is_compared_with_that_of_memcpy(self):
        answers = [answer(1.0, 2.0, put_cpu=0.6, memcpy_put_cpu=0.2, get_warm_cpu=0.5, memcpy_get_cpu=0.25)]
        self.assertAlmostEqual(figures.row(FILES, "put_cpu", "memory", SIZE, answers, [{}])["ratio_to_limit"], 3.0)
        self.assertAlmostEqual(figures.row(FILES, "get_warm_cpu", "disk", SIZE, answers, [{}])["ratio_to_limit"], 2.0)
        row = figures.row(MEMORY, "put_cpu", "memory", SIZE, answers, [{}])
        self.assertEqual((row["value"], row["missing"]), (None, "another process does a part of the work"))

    def test_what_is_missing_says_why(self):
        row = figures.row(MEMORY, "put_sync", "memory", SIZE, [answer(1.0, 2.0)], [{}])
        self.assertEqual((row["value"], row["missing"]), (None, "keeps nothing when its process ends"))
        row = figures.row(FILES, "put", "disk", SIZE, [{"missing": "no such thing"}], [{}])
        self.assertEqual((row["ratio_to_limit"], row["missing"]), (None, "no such thing"))

    def test_a_get_of_what_opening_has_read_is_not_cold(self):
        row = figures.row({**FILES, "loads_all": True}, "get_cold", "disk", SIZE, [answer(1.0, 2.0)], [{}])
        self.assertIn("opening it reads all", row["missing"])

    def test_a_round_that_failed_is_said(self):
        row = figures.row(FILES, "put", "memory", SIZE, [answer(1.0, 2.0), {"missing": "it died"}], [{}] * 2)
        self.assertEqual((row["ratio_to_limit"], row["failed_rounds"], row["failed_why"]), (0.5, 1, "it died"))

    def test_the_raw_file_missing_leaves_a_value_without_a_ratio(self):
        row = figures.row(FILES, "get_cold", "disk", SIZE, [answer(1.0, 2.0, get_cold=5.0)], [{}])
        self.assertEqual((row["value"], row["ratio_to_limit"]), (5.0, None))
        self.assertEqual(row["missing"], "its limit, raw O_DIRECT file, was not measured")


class Faults(unittest.TestCase):
    def outcome(self, **counts):
        return {"blocks": 8, "opened": True, "right": 0, "wrong": 0, "miss": 0, "error": 0, "signal": 0, **counts}

    def test_verdicts(self):
        self.assertEqual(figures.verdict(self.outcome(right=7, wrong=1)), "7 right, 1 WRONG")
        self.assertEqual(figures.verdict(self.outcome(right=7, miss=1)), "7 right, 1 miss")
        self.assertEqual(figures.verdict(self.outcome(right=3, signal=7)), "3 right, then dies of signal 7")
        self.assertEqual(figures.verdict(self.outcome(signal=9)), "dies of signal 9")
        self.assertEqual(figures.verdict(self.outcome(opened=False)), "does not open")
        self.assertEqual(figures.verdict({"missing": "why"}), "why")

    def test_row_counts_wrong_blocks(self):
        row = figures.fault_row(FILES, "flipped_byte", "disk", self.outcome(right=6, wrong=2))
        self.assertEqual((row["value"], row["ratio_to_limit"], row["answer"]), (2, 0.25, "6 right, 2 WRONG"))


class Report(unittest.TestCase):
    def result(self):
        systems = [FILES, MEMORY, OURS]
        puts = {
            "files": [answer(1.0, 4.0), answer(2.0, 4.0)],
            "memory": [{"missing": "no <package>"}] * 2,
            OURS["system"]: [answer(3.0, 4.0)] * 2,
        }
        rows = [
            figures.row(s, o, p, SIZE, puts[s["system"]], [{}] * 2)
            for s in systems
            for o in figures.OPERATIONS
            for p in ("memory", "disk")
        ]
        outcome = {"blocks": 8, "opened": True, "right": 7, "wrong": 1, "miss": 0, "error": 0, "signal": 0}
        rows += [figures.fault_row(FILES, fault, "disk", outcome) for fault in figures.FAULTS]
        machine = {
            "cpu": "a",
            "cores": 2,
            "memory_bytes": 2**30,
            "kernel": "6",
            "file_systems": {"memory": "tmpfs", "disk": "ext4"},
            "versions": {"b": "1"},
            "working_set_bytes": 2**20,
            "batch": 8,
            "compiler": "cc",
            "seconds": 1,
            "load_before": [0.0],
            "load_after": [0.0],
        }
        return {"machine": machine, "systems": systems, "rows": rows}

    def test_text_has_every_ratio_and_reason(self):
        text = report.text(self.result())
        self.assertIn("| files | 0.38 (0.25-0.50) |", text)
        self.assertIn("no <package>: memory", text)
        self.assertIn("put: kvonce, disk 0.75 of memcpy; files 0.38 (kvonce is 2.00 times as fast).", text)
        self.assertIn("| files | 7 right, 1 WRONG |", text)
        self.assertIn("### 5 MiB blocks on the disk, 2 rounds", text)

    def test_readme_says_who_is_ahead(self):
        result = self.result()
        head = "On the tmpfs, of those that keep files, *kvonce, disk* is in put ahead of all, next files (2.00 times "
        head += "as fast); in get "
        tail = " (medians; docs/peers.md has the spreads)."
        for theirs, said in (
            (0.4, "ahead of all, next files (1.25 times as fast)"),
            (0.8, "behind files (0.62 times as fast)"),
        ):
            for row in result["rows"]:
                if row["system"] == "files" and row["operation"] == "get_warm":
                    row["ratio_to_limit"] = theirs
            self.assertEqual(report.who_is_ahead(result), head + said + tail)
        result["systems"] = [OURS]
        self.assertIn("is in put not measured; in get not measured (medians", report.who_is_ahead(result))

    def test_wrong_bytes_are_said_of_all_and_of_kvonce_when_damaged(self):
        result = self.result()
        self.assertEqual(report.wrong(result), [])
        result["rows"].append(figures.row(FILES, "put", "disk", 1, [{"missing": figures.OTHER_BYTES}], [{}]))
        result["rows"].append(
            figures.row(MEMORY, "put", "disk", 1, [answer(1.0, 2.0), {"missing": figures.OTHER_BYTES}], [{}] * 2)
        )
        damaged = {"blocks": 8, "opened": True, "right": 7, "wrong": 1, "miss": 0, "error": 0, "signal": 0}
        result["rows"].append(figures.fault_row(OURS, "flipped_byte", "disk", damaged))
        self.assertEqual(report.wrong(result), ["files", "memory", "kvonce, disk"])
        self.assertIn("1 of 2 rounds failed: other bytes came back: memory", report.text(result))
        for file in ("measure.c", "serve.py"):
            self.assertIn('"%s"' % figures.OTHER_BYTES, (ROOT / "bench/peers" / file).read_text())

    def test_what_a_reader_of_damage_gets(self):
        said = {
            "7 right, 1 WRONG": "wrong byte served",
            "7 right, 1 miss": "miss",
            "7 right, 1 error": "error",
            "8 miss": "all 8 blocks lost",
            "8 error": "all 8 blocks lost",
            "does not open": "all 8 blocks lost",
            "": "-",
        }
        self.assertEqual({answer: report.served(answer) for answer in said}, said)

    def test_small_ratios_are_not_nought(self):
        self.assertEqual([report.number(x) for x in (0.004, 0.016, 1.0, 12.3)], ["0.004", "0.02", "1.00", "12"])

    def test_plot_is_well_formed(self):
        xml.dom.minidom.parseString(report.plot(self.result()))

    def test_documents_keep_what_is_around_the_marks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.md")
            path.write_text("before\n<!-- bench-peers: from here -->\nold\n<!-- bench-peers: to here -->\nafter\n")
            for words in ("first \\1", "second"):
                report.put_between(path, words)
            self.assertEqual(
                path.read_text(),
                "before\n<!-- bench-peers: from here -->\n\nsecond\n\n" "<!-- bench-peers: to here -->\nafter\n",
            )


unittest.main()
