#!/usr/bin/env bash
# Changes each package's code at one place after the other, and prints how many of the changes the package's own tests notice.
# Fails below 90 %. Gremlins copies the module before it works: so it is given a copy without caches.
#   hack/mutation.sh GREMLINS ./pkg/ipalloc ./pkg/expand
set -euo pipefail
gremlins=$1
shift
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy"
cd "$copy"
failed=0
# A change can make a loop without end, which outlives its test, or allocates without end.
ulimit -t 120 -v 8000000
# Most of the time of a change is the linker's, vet's and that of the long tests.
export GOFLAGS="-vet=off -skip=^TestLong '-ldflags=-s -w'"
for pkg in "$@"; do
	echo "$pkg: a few seconds for each change"
	# A change that makes a loop endless ends by a timeout, and counts as neither noticed nor missed.
	"$gremlins" unleash --workers 1 --timeout-coefficient 20 --output-statuses l --threshold-efficacy 90 "$pkg" || failed=1
done
exit $failed
