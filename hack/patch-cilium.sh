#!/usr/bin/env bash
# Writes a copy of the Cilium of test/cilium/go.mod, with test/cilium/patches applied, to
# DIR/source, and a DIR/go.mod that builds test/cilium with it.
# Usage: hack/patch-cilium.sh DIR
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/../test/cilium"

go mod download github.com/cilium/cilium
rm -rf "$dir/source"
cp -r "$(go list -m -f '{{.Dir}}' github.com/cilium/cilium)" "$dir/source"
chmod -R u+w "$dir/source"
for patch in patches/*.patch; do
	# The ceiling: else git takes DIR for a part of this repository, and applies nothing.
	GIT_CEILING_DIRECTORIES=$dir git -C "$dir/source" apply --verbose "$PWD/$patch"
done
cp go.sum "$dir/go.sum"
cp go.mod "$dir/go.mod"
go mod edit -replace "github.com/cilium/cilium=$dir/source" "$dir/go.mod"
