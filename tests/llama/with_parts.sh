#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# with_parts.sh PROGRAM [ARGUMENT ...]: runs it with the real libraries and weights, which are fetched the first time.
set -eu
parts=$("$(dirname "$0")/../../tools/llama-parts.sh" --old) || {
    echo "skipped: no library or no weights"
    exit 77
}
eval "$parts"
export KVONCE_LLAMA_LIB KVONCE_LLAMA_LIB_OLD KVONCE_LLAMA_MODEL
exec "$@"
