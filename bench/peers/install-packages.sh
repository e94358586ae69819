#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what bench/peers builds against and runs on this Debian machine; `make test` needs none of it.
set -eu
needed="liblmdb-dev librocksdb-dev redis-server liburing-dev libibverbs1 libnuma1 libcurl4 python3-venv
    binutils"

lacking=
for package in $needed; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || lacking="$lacking $package"
done
[ -n "$lacking" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "bench-peers: not root; run this first: sudo apt-get install -y$lacking" >&2
    exit 1
fi
# RUNLEVEL: the server that a package would start is of no use here, the benchmark starts its own.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
echo "bench-peers: installing$lacking" >&2
install() {
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y --no-install-recommends $lacking >"$log" 2>&1
}
install || { apt-get update >"$log" 2>&1 && install; } || {
    tail -n 5 "$log" >&2
    exit 1
}
