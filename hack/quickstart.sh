#!/usr/bin/env bash
# Runs the block of docs/start.md that starts a cluster on this machine, as a reader
# would, but for the watch, which ends by Ctrl-C alone.
set -euo pipefail
cd "$(dirname "$0")/.."

block=$(awk '/^```sh/ {found = 1; next} /^```/ && found {exit} found' docs/start.md)
[[ $block == *"make up"* && $block == *"get podipblocks -w"* ]] || {
	echo "the first block of docs/start.md has changed: change this script too" >&2
	exit 1
}
trap 'make --no-print-directory down' EXIT
bash -euxo pipefail -c "${block/podipblocks -w/podipblocks}"
