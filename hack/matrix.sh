#!/usr/bin/env bash
# matrix.sh PAGE "KUBERNETES..." "CILIUM..." runs the scenarios matrix of make e2e on each pair of versions, and writes the
# results into the table of PAGE. It fails if one failed or the page has no row for a pair.
set -euo pipefail
page=$1 failed=0

# cell MODE prints the result of a mode, from the table that make e2e has printed.
cell() {
	case $(awk -v scenario="matrix-$1" '$1 == scenario {print $NF}' <<<"$out" | sort -u | xargs) in
	*FAIL* | "" | -) echo '**fails**' ;;
	*skipped*) echo 'not tested' ;;
	*) echo tested ;;
	esac
}

for kubernetes in $2; do
	for cilium in $3; do
		row="| ${kubernetes#v} | ${cilium#v} |"
		grep -qF "$row" "$page" || { echo "$page has no row for this pair: $row" >&2; exit 1; }
		echo "=== Kubernetes $kubernetes, Cilium $cilium"
		out=$("${MAKE:-make}" --no-print-directory e2e RUN=matrix KUBERNETES="$kubernetes" CILIUM="$cilium" | tee /dev/stderr) || true
		new="$row $(cell crd) | $(cell multi-pool) |"
		echo "$new"
		[[ $new != *fails* ]] || failed=1
		sed -i "s/^$row.*/$new/" "$page"
	done
done
exit $failed
