#!/usr/bin/env bash
# Writes a copy of Cilium's source, with test/cilium/patches applied, to DIR.
# Usage: hack/patch-cilium.sh SOURCE DIR
set -euo pipefail
rm -rf "$2"
mkdir -p "$2"
cp -r "$1/." "$2"
chmod -R u+w "$2"
dir=$(cd "$2" && pwd)
cd "$(dirname "$0")/../test/cilium/patches"
for patch in *.patch; do
	# The ceiling: else git takes DIR for a part of this repository, and applies nothing.
	GIT_CEILING_DIRECTORIES=$(dirname "$dir") git -C "$dir" apply --verbose "$PWD/$patch"
done
