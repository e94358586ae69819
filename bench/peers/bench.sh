#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the C part against a build of kvonce, makes the Python environment and runs: bench.sh BUILD [options of run.py]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
build=$(cd "${1:?a build of kvonce}" && pwd)
shift
"$here/install-packages.sh"
${CC:-cc} -std=c11 -O2 -Wall -Wextra -D_GNU_SOURCE -I"$root/include" "$here"/*.c -o "$build/peers.$$" -L"$build/src" \
    -Wl,-rpath,"$build/src" -lkvonce -llmdb -lrocksdb -luring
mv "$build/peers.$$" "$build/peers" # whole, for a run at the same time
python=$("$here/environment.sh") || echo "bench-peers: going on without LMCache and Mooncake" >&2
exec python3 "$here/run.py" "$build/peers" ${python:+"$python"} "$@"
