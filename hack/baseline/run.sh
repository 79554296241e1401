#!/usr/bin/env bash
# Records what the code does (RECORD=1), or compares it with the record in testdata. It guards
# the restructuring and is deleted at its end.
#
#   hack/baseline/run.sh [plans] [replays] [entered] [counts] [seeds] [mutants]
#
# SEEDS is how many seeds of the simulator are played, in thousands: a record made with
# SEEDS=20000 has 20 lines, of which SEEDS=2000, the default, compares two. Where plans differ,
# PLANS=N prints those of the N-th thousand in full, to be compared with the same output of
# another commit. "entered" and "counts" change on purpose: record them again.
set -euo pipefail
cd "$(dirname "$0")/../.."
recorded=hack/baseline/testdata
work=$(mktemp -d)
seeds=${SEEDS:-2000}

# plans: hashes of the plans of 100,000 random states of pkg/expand, a line per thousand.
plans() {
	go test -tags baseline ./pkg/expand -run '^TestPlansAsRecorded$' -count=1 -v | sed -n 's/^plans //p'
}

# replays: the kept failures of the simulator.
replays() {
	go test ./test/sim -run '^TestReplays$' -count=1 -v | sed -nE 's/^ +--- ([A-Z]+): (\S+) .*/\1 \2/p' | sort
}

# entered: the files and functions entered by a join, and by a reclaim.
entered() {
	for name in TestReconcileFirstBlocks TestLogLinesPerBlock; do
		go run ./hack/house -entered ./pkg/controller/node "$name"
	done
}

# counts: the counted work of bench-quick that does not depend on time.
counts() {
	ln -s "$PWD"/.cache/bin/{etcd,kube-apiserver,kubectl} "$work"
	go build -o "$work" ./cmd/cilium-pool-operator ./test/bench
	"$work/bench" quick -nodes=100 -bin "$work" -out "$work/bench-quick" -results "$work/results" >&2 ||
		echo "counts: bench-quick fails, with what is counted here and elsewhere" >&2
	awk -F'"' '
		$2 == "measure" || $2 == "contender" { of[$2] = $4 }
		/"(block writes|node writes|other writes|own writes|versions|writes per pod|lists of [a-z]+)":/ {
			gsub(/[ ,:]/, "", $3); print of["measure"] " | " of["contender"] " | " $2 " | " $3
		}' "$work"/results/*.json
}

# seeds: what operators wrote in the simulator, or the seed that failed, a line for every thousand
# seeds. These may be too few to try everything.
seeds() {
	local from out
	go build -o "$work" ./test/sim
	for ((from = 1; from < seeds; from += 1000)); do
		if out=$("$work/sim" -seed=$from -seeds=1000 -shrink=1s) || grep -q '^FAILED: too little was tried' <<<"$out"; then
			sed -n "s/^written by operators:/from seed $from:/p" <<<"$out"
		else
			grep -A9 '^FAILED' <<<"$out" >&2
			grep '^FAILED' <<<"$out"
		fi
	done
}

# mutants: the key mutants, with the first check that catches each.
mutants() {
	go run ./test/mutants -key | sed -nE 's/^([a-z]\S+) .* [0-9.]+s  (\S+).*$/\1 \2/p'
}

trap 'rm -rf "$work"' EXIT
now=$work/now
failed=
for part in ${*:-plans replays entered counts seeds mutants}; do
	"$part" >"$now"
	if [[ -n ${RECORD:-} ]]; then
		cp "$now" "$recorded/$part.txt"
		echo "$part: recorded, $(wc -l <"$now") lines"
	elif [[ -n ${PLANS:-} && $part == plans ]]; then
		cat "$now"
	elif head -n "$([[ $part == seeds ]] && echo $((seeds / 1000)) || echo -0)" "$recorded/$part.txt" | diff -U0 - "$now"; then
		echo "$part: as recorded"
	else
		failed+=" $part"
	fi
done
[[ -z $failed ]] || { echo "differs from the record:$failed"; exit 1; }
