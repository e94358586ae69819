#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header is valid C11 and C++17, and the initialisers fit their structs.
set -eu
header_directory=$(cd "$(dirname "$0")/../include" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/use.c" <<'EOF'
#include "kvonce.h"
int main(void)
{
    kvo_tier_config tier = KVO_TIER_CONFIG_INIT;
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_space_config space = KVO_SPACE_CONFIG_INIT;
    kvo_chain chain = KVO_CHAIN_INIT;
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    kvo_get_options get = KVO_GET_OPTIONS_INIT;
    kvo_stat stat = KVO_STAT_INIT;
    return (int)(tier.size + options.size + space.size + chain.size + put.size + get.size + stat.size + policy.qos) == 0;
}
EOF
cat >"$work/use_llama.c" <<'EOF'
#include "kvonce_llama.h"
int main(void)
{
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
    kvo_llama_stat stat = KVO_LLAMA_STAT_INIT;
    return (int)(options.size + stat.size) == 0;
}
EOF
for name in use use_llama; do cp "$work/$name.c" "$work/$name.cc"; done

tried=0
check() { # compiler, arguments ...
    command -v "$1" >/dev/null || { echo "no $1 here"; return 0; }
    "$@" -Wall -Wextra -Werror -pedantic -I"$header_directory" -I"$header_directory/../engines/llama" -fsyntax-only
    tried=$((tried + 1))
}
check gcc -std=c11 "$work/use.c" "$work/use_llama.c"
check clang -std=c11 "$work/use.c" "$work/use_llama.c"
check g++ -std=c++17 "$work/use.cc" "$work/use_llama.cc"
check clang++ -std=c++17 "$work/use.cc" "$work/use_llama.cc"
[ "$tried" -ge 2 ] || exit 77
echo "$tried compilers"
