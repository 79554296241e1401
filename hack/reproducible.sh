#!/usr/bin/env bash
# Builds the files of a release of HEAD twice: in two folders with nothing in
# common, and the second time with an empty build cache. Fails if one differs.
#
#   reproducible.sh PLATFORMS HELM
set -euo pipefail
cd "$(dirname "$0")/.."
platforms=$1 helm=$2
here=$PWD/.cache/reproducible
rm -rf "$here"
trap 'rm -rf "$here"' EXIT

build() { # FOLDER
	mkdir -p "$here/$1"
	git archive HEAD | tar -x -C "$here/$1"
	go run -C "$here/$1/hack/release" . -version v0.0.0-reproducible -commit "$commit" -epoch "$epoch" \
		-root "$here/$1" -work "$here/$1/work" -out "$here/$1/dist" -helm "$helm" \
		-image example.org/cilium-pool-operator -only "$platforms"
}

commit=$(git rev-parse HEAD) epoch=$(git log -1 --format=%ct)
build one
(
	# Files of another mode and time, too.
	umask 077
	GOCACHE=$here/gocache build a/longer/name/two
)
diff -r "$here/one/dist" "$here/a/longer/name/two/dist"
cat "$here/one/dist/checksums.txt"
echo "the same twice: $(wc -l <"$here/one/dist/checksums.txt") files"
