#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a Python environment with LMCache and Mooncake's store that needs no GPU, 2.1 GB below ~/.cache/kvonce
# (KVONCE_CACHE), and prints its Python. It is made once: a later run finds it. Exit 1 and one line on standard error
# where it cannot be made.
#
# Of LMCache's dependencies only those are installed that its memory and file adapters import; of torch's, only
# libcudart, which is called. stand_ins.py makes empty files of the other CUDA libraries.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${KVONCE_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/kvonce}/peers
# Bare: without what they ask for. The others bring their own.
bare="torch==2.15.0 nvidia-cuda-runtime==13.2.86 lmcache==0.5.6 lmcache-rust-raw-block-io==0.5.7rc2"
others="numpy<=2.2.6 mooncake-transfer-engine-non-cuda==0.3.13.post1
    filelock typing-extensions sympy>=1.13.3 networkx jinja2 fsspec sortedcontainers numba prometheus_client<=0.24.1
    py-cpuinfo psutil aiohttp requests cachetools pyyaml cryptography msgspec aiofile aiofiles pyzmq>=25
    transformers>=5.4
    opentelemetry-api==1.40.0 opentelemetry-sdk==1.40.0 opentelemetry-exporter-otlp==1.40.0
    opentelemetry-exporter-prometheus==0.61b0"

fail() {
    [ -f "${home:-}/complete" ] || rm -rf "${home:-}" # half of it is of no use
    echo "bench-peers: $*" >&2
    exit 1
}

version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Another list, another environment. Words: how the list is broken into lines does not matter.
# shellcheck disable=SC2086
digest=$({ echo $bare $others; cat "$here/stand_ins.py"; } | sha256sum | cut -c 1-12)
home=$cache/$version-$digest
if [ ! -f "$home/complete" ]; then
    log=$cache/log
    { mkdir -p "$cache" && : >>"$cache/lock"; } 2>/dev/null ||
        fail "$cache cannot be made: set KVONCE_CACHE to a folder of yours"
    exec 9>"$cache/lock"
    flock 9 # two runs at once: the second finds what the first made
fi
if [ ! -f "$home/complete" ]; then
    rm -rf "$home" # of a run that was killed
    echo "bench-peers: making $home: about two minutes, 600 MB to fetch" >&2
    python3 -m venv "$home" >"$log" 2>&1 || fail "no environment: $(tail -n 1 "$log")"
    pip="$home/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all:"
    # shellcheck disable=SC2086 # lists of words
    { $pip --no-deps $bare && $pip $others; } >"$log" 2>&1 || fail "pip: $(grep -v '^$' "$log" | tail -n 1)"
    "$home/bin/python" "$here/stand_ins.py" >"$log" 2>&1 || fail "stand_ins.py: $(tail -n 1 "$log")"
    touch "$home/complete"
fi
printf '%s\n' "$home/bin/python"
