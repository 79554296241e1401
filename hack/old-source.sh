#!/usr/bin/env bash
# old-source.sh COMMIT DIR puts the files of an earlier commit into DIR.
set -euo pipefail
if ! git cat-file -e "$1^{commit}" 2>/dev/null; then
	echo "commit $1 is not in this clone: git fetch --unshallow" >&2
	exit 1
fi
rm -rf "$2"
mkdir -p "$2"
git archive "$1" | tar -x -C "$2"
