#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A store at work, from nothing: replays a generated trace with real bytes through memory and
# disk, kills the process half-way with SIGKILL, looks at what is left, and goes on from there.
set -eu
kvonce=${KVONCE:-kvonce}
work=$(mktemp -d "${TMPDIR:-/tmp}/kvonce-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
trace=$work/trace.jsonl
tiers=dram:400blk,disk:$work/store:4000blk

say() { printf '\n== %s\n' "$*"; }

say "a trace: 3,000 requests of 4 tenants, turns that grow, shared system prompts"
"$kvonce" trace synth --seed 7 --requests 3000 --tenants 4 >"$trace"
references=$(awk -F "[][]" '{ sum += split($2, ids, ",") } END { print sum }' "$trace")
echo "$(wc -l <"$trace") requests, $references block references; blocks of 64 KiB, real bytes, every byte checked"

say "replay through $tiers, killed half-way"
"$kvonce" replay "$trace" --tiers "$tiers" --block-bytes 64K --events "$work/events" >"$work/first" 2>&1 &
replay=$!
half=$((references / 2))
reached=0
while [ "$reached" -lt "$half" ] && kill -0 "$replay" 2>/dev/null; do
    sleep 0.05
    # The last line may be cut; the one before is whole.
    reached=$(tail -n 2 "$work/events" 2>/dev/null | head -n 1 | cut -d ' ' -f 1)
    reached=${reached:-0}
done
if ! kill -9 "$replay" 2>/dev/null; then
    echo "the replay ended before it could be killed:" >&2
    cat "$work/first" >&2
    exit 1
fi
wait "$replay" 2>/dev/null || true
echo "SIGKILL at block reference $reached of $references"

say "what survived"
"$kvonce" verify "$work/store"
"$kvonce" stat "$work/store" | head -n 3

say "the rest of the trace, from the reopened store"
done_requests=$(awk -F "[][]" -v reached="$reached" '
    { seen += split($2, ids, ",") }
    seen > reached { print NR - 1; exit }' "$trace")
tail -n "+$((done_requests + 1))" "$trace" >"$work/rest.jsonl"
"$kvonce" replay "$work/rest.jsonl" --tiers "$tiers" --block-bytes 64K

say "the same requests on an empty store, for comparison"
"$kvonce" replay "$work/rest.jsonl" --tiers "dram:400blk,disk:$work/none:4000blk" --block-bytes 64K --ghost |
    grep -E '^hits'
