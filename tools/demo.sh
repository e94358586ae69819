#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvonce at work: llama.cpp answers from a prompt's KV that survived a kill -9 (tools/demo_llama.py). Where library and
# model cannot be had, a trace is replayed instead (tools/demo-replay.sh).
#
#   BUILD=build/release tools/demo.sh
set -eu
here=$(dirname "$0")
if parts=$("$here/llama-parts.sh"); then
    eval "$parts"
    export KVONCE_LLAMA_LIB KVONCE_LLAMA_MODEL
    exec python3 "$here/demo_llama.py" "$BUILD"
fi
echo "demo: without libllama and a model there is no answer to show; a trace is replayed instead"
KVONCE=$BUILD/src/cli/kvonce exec "$here/demo-replay.sh"
