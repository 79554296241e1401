#!/usr/bin/env bash
# Tries bgp.frrK8s: two nodes of a real control plane announce their blocks by frr-k8s and
# FRR to a router (BIRD 2) between them and a client, which pings pods of both, in IPv4 and
# IPv6; a session carries the routes of both families. The operator is killed again and again
# while blocks come and go; at the end a node dies. Nodes, router and client are network
# namespaces of this machine. Fails if a ping to a pod of a living node was lost. Needs root,
# iproute2, iputils-ping, bird2, frr, frr-pythontools.
#
#   frr-k8s-try.sh CHAOS KUBECTL FRR-K8S FRR-K8S-SOURCE RUN-DIR
set -euo pipefail
chaos=$1 kubectl=$2 frrk8s=$3 source=$4 run=$5
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
frr=/usr/lib/frr
for program in ip ping bird "$frr/zebra" "$frr/bgpd" "$frr/bfdd" "$frr/frr-reload.py" vtysh; do
	command -v "$program" >/dev/null || { echo "frr-k8s-try: $program is not here: apt-get install bird2 iproute2 iputils-ping frr frr-pythontools" >&2; exit 2; }
done
[[ $EUID -eq 0 ]] || { echo "frr-k8s-try: must be root, for network namespaces" >&2; exit 2; }

one=beijing-01 two=beijing-02 # nodes of the demo, and their addresses
declare -A address=([$one]=192.168.1.1 [$two]=192.168.1.2) address6=([$one]=fd42::11 [$two]=fd42::12)
declare -A pings
router=cpo-router-$$ client=cpo-client-$$
started=()
cleanup() {
	local code=$?
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null
	"$chaos" down --run-dir="$run" >/dev/null || true
	for namespace in "cpo-$one-$$" "cpo-$two-$$" "$router" "$client"; do ip netns delete "$namespace" 2>/dev/null || true; done
	rmdir /etc/frr_reloader 2>/dev/null || true
	[[ $code -eq 0 ]] || tail -n 15 "$run"/*.log >&2 || true
	exit "$code"
}
trap cleanup EXIT

say() { printf '%5ds  %s\n' "$SECONDS" "$*"; }
kube() { "$kubectl" --kubeconfig="$run/kubeconfig" "$@"; }
run_in_background() { # LOG COMMAND...
	local log=$run/$1.log
	shift
	"$@" >"$log" 2>&1 &
	started+=($!)
}
stamped() { while IFS= read -r line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done; }

# mounted runs a command with the folders of a node's FRR, as its container has them.
mounted() { # NODE COMMAND...
	exec unshare --mount sh -c 'for to in /etc/frr /run/frr /etc/frr_reloader /tmp; do mount --bind "$0$to" "$to"; done; exec "$@"' "$run/$1" "${@:2}"
}
in_node() { mounted "$1" ip netns exec "cpo-$1-$$" "${@:2}"; }

held() { kube get ciliumnode "$1" -o jsonpath='{.spec.ipam.podCIDRs[*]}' | tr ' ' '\n' | sort; }
routed() {
	{ ip -netns "$router" route show proto bird via "${address[$1]}" && ip -netns "$router" -6 route show proto bird via "${address6[$1]}"; } |
		awk '{print $1}' | sort
}
until_true() { # WHAT COMMAND...
	local what=$1 deadline=$((SECONDS + 120))
	shift
	until "$@"; do
		if [[ $SECONDS -gt $deadline ]]; then
			echo "frr-k8s-try: not within two minutes: $what" >&2
			for node in "$one" "$two"; do diff <(held "$node") <(routed "$node") >&2 || true; done
			return 1
		fi
		sleep 0.3
	done
	say "$what: the router has $(routed "$one" | wc -l) and $(routed "$two" | wc -l) blocks, $(routed "$one" | grep -c :) and $(routed "$two" | grep -c :) of them IPv6"
}
agree() { # at least, at most: the router has the blocks of both nodes, and so many of each family of the first
	local family n
	for family in '[.]' :; do
		n=$(held "$one" | grep -c "$family")
		[[ $n -ge $1 && $n -le $2 ]] || return 1
	done
	[[ "$(held "$one")" == "$(routed "$one")" && "$(held "$two")" == "$(routed "$two")" ]]
}

mkdir -p "$run"
run=$(cd "$run" && pwd)
rm -rf "$run"/*.log "$run/$one" "$run/$two"
say "starting a control plane, the operator and 4 nodes, of which $one and $two have FRR and frr-k8s"
mkdir -p "$run/examples"
cp "$here"/examples/pool*.yaml "$run/examples"
cat >>"$run/examples/pools.yaml" <<-'YAML'
	---
	apiVersion: cilium-pool.io/v1alpha1
	kind: PodIPPool
	metadata: {name: six}
	spec: {ipv6: {blockSize: 123, cidrs: [{cidr: "fd00:100:166::/64"}]}}
YAML
"$chaos" up --run-dir="$run" --examples="$run/examples" --ipv6 --nodes=4 >"$run/up.log"
kube create namespace frr-k8s-system >>"$run/up.log"
kube apply -f "$here/test/integration/testdata/frrconfigurations.yaml" -f "$source/config/crd/bases/frrk8s.metallb.io_frrnodestates.yaml" >>"$run/up.log"
kube wait --for=condition=Established crd/frrconfigurations.frrk8s.metallb.io crd/frrnodestates.frrk8s.metallb.io >>"$run/up.log"
sed '/topology.kubernetes.io/d' "$here/examples/bgp/frr-k8s.yaml" | kube apply -f - >>"$run/up.log"

# The operator, with the flag that bgp.frrK8s sets, and dying after some tenths of a second or never.
mapfile -d '' -t operator <"/proc/$(cat "$run/up/cilium-pool-operator.pid")/cmdline"
kill -9 "$(cat "$run/up/cilium-pool-operator.pid")"
operate() {
	"${operator[@]}" --leader-elect=false --frr-k8s-namespace=frr-k8s-system >>"$run/operator.log" 2>&1 &
	operator_pid=$!
	started+=("$operator_pid")
}
operate

for namespace in "$router" "$client" "cpo-$one-$$" "cpo-$two-$$"; do
	ip netns add "$namespace"
	ip -netns "$namespace" link set lo up
done
ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip -netns "$router" link add nodes type bridge
ip -netns "$router" address add 192.168.0.1/16 dev nodes
ip -netns "$router" address add fd42::1/64 dev nodes nodad
ip -netns "$router" link set nodes up
ip -netns "$client" link add eth0 type veth peer name client netns "$router"
ip -netns "$router" address add 198.51.100.1/24 dev client
ip -netns "$router" address add fd43::1/64 dev client nodad
ip -netns "$router" link set client up
ip -netns "$client" address add 198.51.100.2/24 dev eth0
ip -netns "$client" address add fd43::2/64 dev eth0 nodad
ip -netns "$client" link set eth0 up
ip -netns "$client" route add default via 198.51.100.1
ip -netns "$client" route add default via fd43::1

mkdir -p /etc/frr_reloader
for node in "$one" "$two"; do
	ip -netns "cpo-$node-$$" link add eth0 type veth peer name "$node" netns "$router"
	ip -netns "$router" link set "$node" up master nodes
	ip -netns "cpo-$node-$$" address add "${address[$node]}/16" dev eth0
	ip -netns "cpo-$node-$$" address add "${address6[$node]}/64" dev eth0 nodad
	ip -netns "cpo-$node-$$" link set eth0 up
	ip -netns "cpo-$node-$$" route add default via 192.168.0.1
	ip -netns "cpo-$node-$$" route add default via fd42::1
	install -d -o frr -g frr "$run/$node"/{etc/frr,run/frr}
	install -d "$run/$node"/{etc/frr_reloader,tmp}
	install -o frr -g frr /dev/null "$run/$node/etc/frr/vtysh.conf"
	for daemon in zebra bfdd "bgpd -p 0"; do
		# shellcheck disable=SC2086
		run_in_background "$node-${daemon%% *}" in_node "$node" "$frr/"$daemon -A 127.0.0.1 --log stdout
		until [[ -S $run/$node/run/frr/${daemon%% *}.vty ]]; do sleep 0.2; done
	done
	run_in_background "$node-reloader" in_node "$node" bash "$source/frr-tools/reloader/frr-reloader.sh"
	run_in_background "$node-frr-k8s" mounted "$node" env KUBECONFIG="$run/kubeconfig" FRR_CONFIG_FILE=/etc/frr_reloader/frr.conf \
		FRR_RELOADER_PID_FILE=/etc/frr_reloader/reloader.pid "$frrk8s" --node-name="$node" --namespace=frr-k8s-system --metrics-bind-address=0
done

{
	printf 'log stderr all;\nrouter id 192.168.0.1;\nprotocol device {}\nprotocol bfd {}\n'
	for family in ipv4 ipv6; do printf 'protocol kernel { %s { export where source = RTS_BGP; }; }\n' $family; done
	for node in "$one" "$two"; do
		printf 'protocol bgp { local 192.168.0.1 as 65000; neighbor %s as 65001; bfd { interval 300 ms; multiplier 3; }; passive; error wait time 1, 2; ipv4 { import all; export none; }; ipv6 { import all; export none; }; }\n' "${address[$node]}"
	done
} >"$run/bird.conf"
run_in_background bird ip netns exec "$router" bird -f -c "$run/bird.conf" -s "$run/bird.ctl"
run_in_background monitor ip -netns "$router" monitor route
"$kubectl" --kubeconfig="$run/kubeconfig" get podipblocks -w --no-headers -o custom-columns=:.spec.nodeName,:.spec.cidr 2>/dev/null > >(stamped >"$run/blocks.log") &
started+=($!)
ip -netns "$router" monitor route > >(stamped >"$run/routes.log") &
started+=($!)

until_true "first blocks" agree 1 9
ready=$EPOCHREALTIME
few=$(held "$one" | grep -vc :)
for node in "$one" "$two"; do
	for family in '[0-9.]*' '[0-9a-f]*:[0-9a-f:]*'; do
		pod=$(kube get ciliumnode "$node" -o json | grep -o "\"$family\": {\$" | head -1 | tr -d '" {')
		pod=${pod%:}
		[[ -n $pod ]] || { echo "frr-k8s-try: no pod on $node" >&2; exit 1; }
		ip -netns "cpo-$node-$$" address add "$pod" dev lo
		ip netns exec "$client" ping -q -i 0.02 -W 1 "$pod" >"$run/ping-$node-$pod.log" 2>&1 &
		pings[$node]+=" $!"
		started+=($!)
	done
done

"$chaos" burst --run-dir="$run" --node="$one" --pods=100 >>"$run/up.log"
until_true "100 pods on $one" agree $((few + 1)) 99
many=$(held "$one" | grep -vc :)
"$chaos" burst --run-dir="$run" --node="$one" --pods=0 >>"$run/up.log"
until_true "none of them any more" agree 1 $((many - 1))

kills=0
killer() { # COMMAND...: operators that live for 0.2, 0.4, ... seconds, while the command runs
	"$@" >>"$run/up.log" &
	local command=$!
	for tenths in {2..40..2}; do
		kill -9 "$operator_pid"
		wait "$operator_pid" 2>/dev/null || true
		operate
		kills=$((kills + 1))
		sleep "$((tenths / 10)).$((tenths % 10))"
	done
	wait "$command"
}
killer "$chaos" burst --run-dir="$run" --node="$one" --pods=100
until_true "100 pods again, $kills operators killed" agree $((few + 1)) 99
killer "$chaos" burst --run-dir="$run" --node="$one" --pods=0
until_true "none again, $kills operators killed" agree 1 $((many - 1))

count() { # NODE: ends the pings to its pods; sets sent and lost
	# shellcheck disable=SC2086
	kill -INT ${pings[$1]}
	# shellcheck disable=SC2086
	wait ${pings[$1]} || true
	read -r sent lost < <(awk '/packets transmitted/ {sent += $1; lost += $1 - $4} END {print sent, lost}' "$run/ping-$1-"*)
	say "$sent pings to pods of $1, $lost lost"
	[[ $lost -eq 0 ]] || failed=1
}
count "$two"

# Death without a word: no packet leaves it any more.
died=$EPOCHREALTIME
ip -netns "cpo-$two-$$" link set eth0 down
gone() { [[ -z "$(routed "$two")" ]]; }
until_true "$two died" gone
count "$one"
kube delete node "$two" >>"$run/up.log"
forgotten() { ! kube -n frr-k8s-system get frrconfigurations -o name | grep -q "$two"; }
until_true "its Node is deleted, and its FRRConfiguration" forgotten

awk -v ready="$ready" -v died="$died" -v dead="via (${address[$two]}|${address6[$two]}) " '
	FILENAME ~ /blocks/ {if (!($3 in seen)) {seen[$3]; if ($1 > ready) block[$3] = $1}; next}
	$2 == "Deleted" {if ($0 ~ dead && $1 > died && !(gone > $1)) gone = $1; next}
	/proto bird/ && ($2 in block) && !routed[$2]++ {d = $1 - block[$2]; n++; sum += d; if (d > most) most = d}
	END {printf "%d blocks: %.1f s from block to route, %.1f s at most; %.1f s from death to withdrawal\n", n, sum / n, most, gone - died}
' "$run/blocks.log" "$run/routes.log"
[[ -z ${failed:-} ]] || { echo "frr-k8s-try: pings were lost" >&2; exit 1; }
