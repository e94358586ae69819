# SPDX-License-Identifier: Apache-2.0
"""From the answers of the processes that measure to rows: ratios, medians, spreads. tests/peers tests it."""

OPERATIONS = {
    "put": "bytes/s",
    "put_sync": "bytes/s",
    "get_warm": "bytes/s",
    "get_cold": "bytes/s",
    "restart_to_first_hit": "s",
    "put_cpu": "processor seconds/GiB",
    "get_warm_cpu": "processor seconds/GiB",
    "written_bytes_per_payload_byte": "ratio",
    "device_bytes_per_payload_byte": "ratio",
}
FAULTS = ("flipped_byte", "truncated_file", "zeroed_file", "kill_after_put")
RAW = "raw O_DIRECT file"
OTHER_BYTES = "other bytes came back"  # what measure.c and serve.py say
BATCH = 8


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def limit(operation, place, answer, raw):
    """The limit's name and its figure of the same round. `raw`: what the raw file answered in it."""
    if operation.endswith("_per_payload_byte"):
        return "the payload", 1.0
    if operation == "restart_to_first_hit" or (place == "disk" and operation in ("put_sync", "get_cold")):
        return RAW, raw.get(operation)
    name = ("memcpy_put" if operation.startswith("put") else "memcpy_get") + (
        "_cpu" if operation.endswith("_cpu") else ""
    )
    return "memcpy, same process", answer.get(name)


def why_missing(operation, place, system, answers):
    for answer in answers:
        if "missing" in answer:
            return answer["missing"]
    if operation.endswith("_cpu") and not system["alone"]:
        return "another process does a part of the work"
    if not system["persistent"]:
        return "keeps nothing when its process ends"
    if operation == "get_cold" and system.get("loads_all"):
        return "opening it reads all blocks into memory: see restart"
    if place == "memory" and operation.endswith("_per_payload_byte"):
        return "a file system in memory has no device"
    return "the kernel does not count it here"


def row(system, operation, place, size, answers, raws):
    """One row of all rounds: answers of the system and of the raw file, round by round."""
    result = {
        "system": system["system"],
        "operation": operation,
        "block_bytes": size,
        "file_system": place,
        "unit": OPERATIONS[operation],
        "batch": BATCH,
        "durability": system["durability"],
        "checks": system["checks"],
    }
    partly = operation.endswith("_cpu") and not system["alone"]
    good = [(a, r) for a, r in zip(answers, raws) if operation in a and "missing" not in a and not partly]
    if not good:
        return {
            **result,
            "value": None,
            "ratio_to_limit": None,
            "missing": why_missing(operation, place, system, answers),
        }
    samples = [a[operation] for a, _ in good]
    name = limit(operation, place, *good[0])[0]
    limits = [limit(operation, place, a, r)[1] for a, r in good]
    ratios = [s / l for s, l in zip(samples, limits) if l]
    result.update(
        value=median(samples),
        least=min(samples),
        most=max(samples),
        samples=samples,
        limit=name,
        ratio_to_limit=median(ratios) if ratios else None,
    )
    if ratios:
        result.update(ratio_least=min(ratios), ratio_most=max(ratios))
    else:
        result["missing"] = "its limit, %s, was not measured" % name
    failed = [a["missing"] for a in answers if "missing" in a]
    if failed:
        result.update(failed_rounds=len(failed), failed_why=failed[0])
    return result


def verdict(outcome):
    """What a system made of a fault, in words."""
    if "missing" in outcome:
        return outcome["missing"]
    if not outcome["opened"] and not outcome["signal"]:
        return "does not open"
    said = [
        "%d %s" % (outcome[kind], {"wrong": "WRONG"}.get(kind, kind))
        for kind in ("right", "wrong", "miss", "error")
        if outcome[kind]
    ]
    if outcome["signal"]:
        said.append("%sdies of signal %d" % ("then " if said else "", outcome["signal"]))
    return ", ".join(said)


def fault_row(system, fault, place, outcome):
    result = {
        "system": system["system"],
        "operation": fault,
        "block_bytes": 1 << 20,
        "file_system": place,
        "unit": "wrong blocks",
        "batch": BATCH,
        "durability": system["durability"],
        "checks": system["checks"],
        "answer": verdict(outcome),
    }
    if "missing" in outcome:
        return {**result, "value": None, "ratio_to_limit": None, "missing": outcome["missing"]}
    return {**result, "value": outcome["wrong"], "ratio_to_limit": outcome["wrong"] / outcome["blocks"], **outcome}


def find(rows, system, operation, place, size):
    for one in rows:
        if (one["system"], one["operation"], one["file_system"], one["block_bytes"]) == (
            system,
            operation,
            place,
            size,
        ):
            return one
    return None
