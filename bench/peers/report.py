# SPDX-License-Identifier: Apache-2.0
"""Rows as text: the tables of docs/peers.md, the README's table, the plot."""

import html
import pathlib
import re

import figures

SIZE = 5 << 20
OURS = "kvonce, disk"
THREADS = "kvonce, disk by threads"
PLACES = {"memory": "a file system in memory", "disk": "the disk"}
COLUMNS = {
    "put": "put",
    "put_sync": "put and sync",
    "get_warm": "get warm",
    "get_cold": "get cold",
    "restart_to_first_hit": "restart to first hit",
    "put_cpu": "processor, put",
    "get_warm_cpu": "processor, get",
    "written_bytes_per_payload_byte": "bytes written",
    "device_bytes_per_payload_byte": "bytes to the device",
}
FAULT_COLUMNS = {
    "flipped_byte": "a byte turned over",
    "truncated_file": "a file cut short",
    "zeroed_file": "a file of zeros",
    "kill_after_put": "kill -9 after the put",
}


def size_text(size):
    return "%d MiB" % (size >> 20) if size >= 1 << 20 else "%d KiB" % (size >> 10)


def number(value):
    return "%.3f" % value if value < 0.00995 else "%.2f" % value if value < 9.95 else "%.0f" % value


def cell(row):
    """The ratio and, behind it, the least and the most of its rounds."""
    if row is None or row["ratio_to_limit"] is None:
        return "-"
    if len(row["samples"]) == 1:
        return number(row["ratio_to_limit"])
    return "%s (%s-%s)" % tuple(number(row[key]) for key in ("ratio_to_limit", "ratio_least", "ratio_most"))


def table(head, lines):
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(line) + " |" for line in lines]
    )


def names(result):
    return [system["system"] for system in result["systems"]]


def ratio(result, system, operation, place="memory", size=SIZE):
    row = figures.find(result["rows"], system, operation, place, size)
    return row["ratio_to_limit"] if row else None


def measured_table(result, place, size):
    wanted = [name for name in COLUMNS if place == "disk" or not name.endswith("_per_payload_byte")]
    lines = [
        [system] + [cell(figures.find(result["rows"], system, name, place, size)) for name in wanted]
        for system in names(result)
    ]
    return table(["system"] + [COLUMNS[name] for name in wanted], lines)


def missing_lines(result):
    """Each reason once: a dash in a table is never all that is said."""
    reasons = {}
    for row in result["rows"]:
        if row.get("missing") or row.get("failed_why"):
            reason = row.get("missing") or "%d of %d rounds failed: %s" % (
                row["failed_rounds"],
                row["failed_rounds"] + len(row["samples"]),
                row["failed_why"],
            )
            reasons.setdefault(reason, []).append(row["system"])
    return ["- %s: %s" % (reason, "; ".join(dict.fromkeys(systems))) for reason, systems in reasons.items()]


def wrong(result):
    """Who gave back other bytes than were put, undamaged; and, of kvonce, damaged as well."""
    found = [
        row["system"]
        for row in result["rows"]
        if figures.OTHER_BYTES in (row.get("missing"), row.get("failed_why"))
        or (row["system"].startswith("kvonce") and row["operation"] in figures.FAULTS and row["value"])
    ]
    return list(dict.fromkeys(found))


def fault_table(result):
    rows = {(row["system"], row["operation"]): row for row in result["rows"] if "answer" in row}
    lines = [
        [system] + [rows[system, fault]["answer"] if (system, fault) in rows else "-" for fault in figures.FAULTS]
        for system in names(result)
        if any("missing" not in rows.get((system, fault), {"missing": 1}) for fault in figures.FAULTS)
    ]
    return table(["system"] + list(FAULT_COLUMNS.values()), lines)


def of_files(result, operation):
    """The ratios of the systems of others that keep blocks in files, at 5 MiB in memory; best first."""
    found = [
        (ratio(result, system["system"], operation), system["system"])
        for system in result["systems"]
        if system["persistent"] and not system["system"].startswith("kvonce") and system["system"] != figures.RAW
    ]
    return sorted(((theirs, name) for theirs, name in found if theirs), reverse=True)


def standing(result, operation, word):
    """How far kvonce's disk tier is from each of them."""
    ours, others = ratio(result, OURS, operation), of_files(result, operation)
    if not ours or not others:
        return "%s: not measured." % word
    text = "; ".join(
        "%s %s (kvonce is %s times as fast)" % (name, number(theirs), number(ours / theirs)) for theirs, name in others
    )
    threads = ratio(result, THREADS, operation)
    by_threads = ", by threads %s" % number(threads) if threads else ""
    return "%s: %s %s of memcpy%s; %s." % (word, OURS, number(ours), by_threads, text)


def who_is_ahead(result):
    """The README's sentence: which of them are ahead of kvonce's disk tier, and by how much."""
    said = []
    for operation, word in (("put", "put"), ("get_warm", "get")):
        ours, others = ratio(result, OURS, operation), of_files(result, operation)
        if not ours or not others:
            said.append("in %s not measured" % word)
            continue
        factors = ["%s (%s times as fast)" % (name, number(ours / theirs)) for theirs, name in others]
        ahead = factors[: sum(theirs > ours for theirs, _ in others)]
        said.append("in %s %s" % (word, "behind " + ", ".join(ahead) if ahead else "ahead of all, next " + factors[0]))
    return "On the tmpfs, of those that keep files, *%s* is %s (medians; docs/peers.md has the spreads)." % (
        OURS,
        "; ".join(said),
    )


def processor(result, operation, word):
    """What a block costs in processors' time, of the same systems, the raw file and kvonce: least first."""
    said = [
        (ratio(result, system["system"], operation), system["system"])
        for system in result["systems"]
        if system["persistent"]
    ]
    said = [(theirs, system) for theirs, system in said if theirs]
    if not said:
        return "processor time of a %s: not measured." % word
    return "processor time of a %s, of memcpy's: %s." % (
        word,
        "; ".join("%s %s" % (system, number(theirs)) for theirs, system in sorted(said)),
    )


def rounds_text(result, place, size):
    counts = [
        len(row["samples"])
        for row in result["rows"]
        if row.get("samples") and (row["file_system"], row["block_bytes"]) == (place, size)
    ]
    return "%d round%s" % (max(counts, default=0), "" if max(counts, default=0) == 1 else "s")


def machine_line(result):
    m = result["machine"]
    return (
        "%s, %d cores, %.0f GiB, Linux %s; %s; %s; %s. Blocks of %d MiB in all, batches of %d, %d s; "
        "load %.1f before, %.1f after (this benchmark's own is 1 to 2)."
    ) % (
        m["cpu"],
        m["cores"],
        m["memory_bytes"] / 2**30,
        m["kernel"],
        m["compiler"],
        ", ".join("%s: %s" % (PLACES[name], kind) for name, kind in m["file_systems"].items()),
        ", ".join("%s %s" % item for item in m["versions"].items()),
        m["working_set_bytes"] >> 20,
        m["batch"],
        m["seconds"],
        m["load_before"][0],
        m["load_after"][0],
    )


def text(result):
    said = [
        standing(result, "put", "put"),
        standing(result, "get_warm", "get"),
        processor(result, "put_cpu", "put"),
        processor(result, "get_warm_cpu", "get"),
    ]
    parts = [machine_line(result), "At 5 MiB, on a file system in memory:\n\n" + "\n".join("- " + one for one in said)]
    for place in PLACES:
        for size in sorted({row["block_bytes"] for row in result["rows"] if row["operation"] in COLUMNS}, reverse=True):
            head = "### %s blocks on %s, %s" % (size_text(size), PLACES[place], rounds_text(result, place, size))
            parts.append(head + "\n\n" + measured_table(result, place, size))
    parts.append("### Faults, of 8 blocks of 1 MiB\n\n" + fault_table(result))
    parts.append(
        "### What a put has reached, what a get checks\n\n"
        + table(
            ["system", "a put has reached; sync", "a get checks"],
            [[s["system"], s["durability"], s["checks"]] for s in result["systems"]],
        )
    )
    parts.append("### Why a figure is missing\n\n" + "\n".join(missing_lines(result)))
    return "\n\n".join(parts)


def short_table(result):
    """The README's: 5 MiB blocks."""
    wanted = [("memory", "put"), ("memory", "get_warm"), ("disk", "put_sync"), ("disk", "get_cold")]
    flips = {row["system"]: row["answer"] for row in result["rows"] if row["operation"] == "flipped_byte"}
    lines = []
    for system in names(result):
        if system == "memcpy":
            continue
        cells = [figures.find(result["rows"], system, operation, place, SIZE) for place, operation in wanted]
        lines.append(
            [system]
            + ["-" if row is None or row["ratio_to_limit"] is None else number(row["ratio_to_limit"]) for row in cells]
            + [served(flips.get(system, ""))]
        )
    return table(
        [
            "5 MiB blocks",
            "put, in memory",
            "get, in memory",
            "put and sync, disk",
            "get cold, disk",
            "one byte turned over",
        ],
        lines,
    )


def served(answer):
    """In a word, what a reader of the damaged block gets."""
    if "WRONG" in answer:
        return "wrong byte served"
    words = [word for word in ("does not open", "miss", "error") if word in answer]
    if words and "right" not in answer:
        return "all 8 blocks lost"
    return words[0] if words else "-"


# ---- The plot ----

STYLE = """
 text { font: 12px system-ui, sans-serif; fill: #1f2328; } .head { font-weight: 600; font-size: 13px; }
 .faint { fill: #59636e; }
 .axis { stroke: #d1d9e0; } .other { fill: #8c959f; } .ours { fill: #0969da; }
 @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .faint { fill: #9198a1; } .axis { stroke: #3d444d; }
 .other { fill: #6e7681; } .ours { fill: #4493f8; } }
"""
LEFT, BAR, STEP, TOP, GAP = 190, 250, 20, 56, 84


def panel(result, x, operation, head):
    lines = ['<text class="head" x="%d" y="40">%s</text>' % (x, head)]
    shown = [system for system in names(result) if system != "memcpy"]
    most = max([ratio(result, system, operation) or 0 for system in shown] + [1.0])
    for i, system in enumerate(shown):
        value, y = ratio(result, system, operation), TOP + i * STEP
        kind = "ours" if system.startswith("kvonce") else "other"
        if value is not None:
            width = max(1.0, BAR * value / most)
            lines.append('<rect class="%s" x="%d" y="%d" width="%.1f" height="14" rx="2"/>' % (kind, x, y, width))
            lines.append('<text class="faint" x="%.1f" y="%d">%s</text>' % (x + width + 6, y + 12, number(value)))
        else:
            lines.append('<text class="faint" x="%d" y="%d">not measured</text>' % (x + 4, y + 12))
    limit = x + BAR / most
    bottom = TOP + len(shown) * STEP
    lines.insert(0, '<line class="axis" x1="%.1f" y1="46" x2="%.1f" y2="%d"/>' % (limit, limit, bottom))
    return lines


def plot(result):
    shown = [system for system in names(result) if system != "memcpy"]
    volatile = {system["system"] for system in result["systems"] if not system["persistent"]}
    width, height = LEFT + 2 * (BAR + GAP), TOP + len(shown) * STEP + 34
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">'
        % (width, height, width, height),
        "<!-- SPDX-" "License-Identifier: Apache-2.0 -->",  # in two, since a file has one such line
        "<title>5 MiB blocks on a file system in memory, of memcpy</title>",
        "<style>%s</style>" % STYLE,
        '<text class="head" x="0" y="16">5 MiB blocks on a file system in memory; the line is memcpy</text>',
    ]
    for i, system in enumerate(shown):
        lines.append(
            '<text x="%d" y="%d" text-anchor="end">%s</text>'
            % (LEFT - 8, TOP + i * STEP + 12, html.escape(system + (" *" if system in volatile else "")))
        )
    lines.append('<text class="faint" x="0" y="%d">* keeps nothing when its process ends</text>' % (height - 8))
    lines += panel(result, LEFT, "put", "put") + panel(result, LEFT + BAR + GAP, "get_warm", "get")
    return "\n".join(lines + ["</svg>", ""])


# ---- Into the documents ----


def put_between(path, words):
    """Replaces what is between the two marks of a document."""
    before = path.read_text()
    begin, end = "<!-- bench-peers: from here -->\n", "<!-- bench-peers: to here -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(before):
        raise SystemExit("report: %s has no marks" % path.name)
    path.write_text(pattern.sub(lambda _: begin + "\n" + words + "\n\n" + end, before))


def write(result, root):
    put_between(root / "docs/peers.md", text(result))
    put_between(root / "README.md", short_table(result) + "\n\n" + who_is_ahead(result))
    pathlib.Path(root / "docs/peers.svg").write_text(plot(result))
