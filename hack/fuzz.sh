#!/usr/bin/env bash
# Runs every fuzz target of the given packages, one after the other. By default
# Go makes each new input smaller for up to a minute, and tries nothing else
# meanwhile.
#   hack/fuzz.sh 20s ./...
set -euo pipefail
fuzztime=$1
shift
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$@" | while read -r pkg; do
	go test -list '^Fuzz' "$pkg" | { grep '^Fuzz' || true; } | while read -r target; do
		echo "$pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" -fuzzminimizetime 1s "$pkg"
	done
done
