#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing and the demo need and this Debian machine lacks.
set -eu
needed="gcc g++ clang meson ninja-build pkg-config git python3 libssl-dev libxxhash-dev liburing-dev libcmocka-dev libseccomp-dev libfuse3-dev spin"
wanted="e2fsprogs gcovr python3-pip scdoc python3-xxhash valgrind"

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing() {
    for package in "$@"; do
        is_installed "$package" || printf '%s ' "$package"
    done
}

install() {
    apt-get install -y --no-install-recommends "$@" >"$log" 2>&1
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "install-packages: not a Debian machine; install by yourself what is missing of: $needed"
    exit 0
fi
# shellcheck disable=SC2086 # lists of words
lacking=$(missing $needed $wanted)
[ -n "$lacking" ] || exit 0
required=$(missing $needed)
if [ "$(id -u)" != 0 ]; then
    echo "install-packages: missing: $lacking" >&2
    echo "install-packages: not root; run this first: sudo apt-get install -y $lacking" >&2
    [ -z "$required" ] || exit 1
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
echo "install-packages: installing $lacking"
# The lists may be old or absent, so a failure asks for new ones first.
install $lacking || { apt-get update >"$log" 2>&1 && install $lacking; } || {
    tail -n 5 "$log" >&2
    [ -z "$required" ] || { echo "install-packages: could not install $required" >&2; exit 1; }
    echo "install-packages: going on without $lacking" >&2
}
