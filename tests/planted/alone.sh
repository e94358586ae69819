#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test in a directory for temporary files of its own, which goes with what the test leaves there when it fails.
TMPDIR=$(mktemp -d) || exit 99
export TMPDIR
"$@"
result=$?
rm -rf "$TMPDIR"
exit $result
