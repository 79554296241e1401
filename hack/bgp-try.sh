#!/usr/bin/env bash
# Tries examples/bgp: prefixes of a real control plane, of both families, reach a
# router's kernel by BGP, and leave it when their blocks go, or their node dies. Network
# namespaces of this machine are two route servers (BIRD 2 or FRR, and BIRD 2) and the
# router (BIRD 2).
# Needs root, iproute2, bird2, and for FRR frr and frr-pythontools. Nothing runs
# on; logs are in RUN-DIR.
#
#   bgp-try.sh CHAOS PLUGIN KUBECTL RUN-DIR [bird|frr]
set -euo pipefail
chaos=$1 plugin=$2 kubectl=$3 run=$4 speaker=${5:-bird}
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
frr=/usr/lib/frr

needs=(ip bird birdc)
[[ $speaker == bird ]] || needs+=("$frr/zebra" "$frr/bgpd" "$frr/frr-reload.py" vtysh)
for program in "${needs[@]}"; do
	command -v "$program" >/dev/null || { echo "bgp-try: $program is not here: apt-get install bird2 iproute2 frr frr-pythontools" >&2; exit 2; }
done
[[ $EUID -eq 0 ]] || { echo "bgp-try: must be root, for network namespaces" >&2; exit 2; }

server=cpo-bgp-server-$$ second=cpo-bgp-second-$$ router=cpo-bgp-router-$$
started=()
cleanup() {
	local code=$?
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	"$chaos" down --run-dir="$run" >/dev/null || true
	for namespace in "$server" "$second" "$router"; do ip netns delete "$namespace" 2>/dev/null || true; done
	rm -rf "/etc/frr/$server" "/var/run/frr/$server"
	[[ $code -eq 0 ]] || tail -n 20 "$run"/*.log >&2 || true
	exit "$code"
}
trap cleanup EXIT

say() { printf '%5ds  %s\n' "$SECONDS" "$*"; }
kube() { "$kubectl" --kubeconfig="$run/kubeconfig" "$@"; }

# exported and routed are the prefixes with their next hops: what is to be, and
# what the router's kernel has.
exported() { "$plugin" --kubeconfig="$run/kubeconfig" export -o csv | awk -F, -v dead="$(cat "$run/dead")" 'NR > 1 && $2 != dead {print $1, $3}' | sort; }
routed() {
	for family in -4 -6; do ip -netns "$router" "$family" route show proto bird; done | awk '{print $1, $3}' | sort
}
number() { routed | wc -l; }
number6() { routed | grep -c : || true; }

# until_routed WHAT COMMAND... waits until the command says yes and the router has
# what is exported, no more and no less.
until_routed() {
	local what=$1 deadline=$((SECONDS + 120))
	shift
	until "$@" && [[ "$(routed)" == "$(exported)" ]]; do
		if [[ $SECONDS -gt $deadline ]]; then
			echo "bgp-try: not within two minutes: $what" >&2
			diff <(exported) <(routed) >&2 || true
			return 1
		fi
		sleep 0.5
	done
	say "$what: the router has $(number) prefixes, $(number6) of them IPv6, all as exported"
}
both() { [[ $(number6) -eq 6 && $(number) -ge 12 ]]; }
more() { [[ $(number) -gt $1 ]]; }
fewer() { [[ $(number) -lt $1 ]]; }
without() { ! exported | grep -qw "$1"; }

# renew has every kubelet renew its Lease twice a second, except that of the node in $run/dead; "all": none.
renew() {
	local dead
	while sleep 0.4; do
		dead=$(cat "$run/dead")
		[[ $dead == all ]] || for node in "${nodes[@]}"; do
			[[ $node == "$dead" ]] || printf -- '---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: %s, namespace: kube-node-lease}\nspec: {leaseDurationSeconds: 8, renewTime: "%s"}\n' \
				"$node" "$(date -u +%FT%T.%6NZ)"
		done | kube apply -f - >/dev/null 2>&1 || true
	done
}

bird_in() { # NAMESPACE NAME
	ip netns exec "$1" bird -f -c "$run/$2.conf" -s "$run/$2.ctl" -P "$run/$2.pid" 2>"$run/$2.log" &
	started+=($!)
}

# frr_in starts FRR with a path space of its own, beside any other of this machine.
frr_in() { # NAMESPACE
	install -d -o frr -g frr "/etc/frr/$1" "/var/run/frr/$1"
	install -o frr -g frr /dev/null "/etc/frr/$1/vtysh.conf"
	for daemon in zebra staticd bgpd; do
		ip netns exec "$1" "$frr/$daemon" -N "$1" -A 127.0.0.1 --log stdout >"$run/$daemon.log" 2>&1 &
		started+=($!)
		local deadline=$((SECONDS + 20))
		until [[ -S /var/run/frr/$1/$daemon.vty ]]; do
			[[ $SECONDS -le $deadline ]] || { echo "bgp-try: $daemon does not start" >&2; return 1; }
			sleep 0.2
		done
	done
}

# keep_routes exports with flags, in the way of the speaker, or of the second server.
keep_routes() {
	local who=$1
	shift
	case $who in
	bird) set -- "$@" -o bird --output-file "$run/pods.conf" --exec "birdc -s $run/server.ctl configure" ;;
	second) set -- "$@" -o bird --output-file "$run/second/pods.conf" --exec "birdc -s $run/second.ctl configure" ;;
	frr) set -- "$@" -o frr --output-file "$run/pods.frr" --exec \
		"$here/examples/bgp/frr-apply.sh $here/examples/bgp/frr.conf $run/pods.frr --pathspace $server" ;;
	esac
	exec "$plugin" --kubeconfig="$run/kubeconfig" export "$@"
}

mkdir -p "$run"
run=$(cd "$run" && pwd)
: >"$run/dead"
cp "$here"/examples/bgp/{server,router}.conf "$run"
say "starting a control plane, the operator and 6 nodes; $speaker is the route server"
mkdir -p "$run/examples"
cp "$here"/examples/pool*.yaml "$run/examples"
cat >>"$run/examples/pools.yaml" <<-'YAML'
	---
	apiVersion: cilium-pool.io/v1alpha1
	kind: PodIPPool
	metadata: {name: six}
	spec: {ipv6: {blockSize: 122, cidrs: [{cidr: "fd00:100:166::/64"}]}}
YAML
"$chaos" up --run-dir="$run" --examples="$run/examples" --nodes=6 >"$run/up.log"

# IPv6: an address for each node.
n=16
for node in $(kube get nodes -o name); do
	n=$((n + 1))
	kube patch "$node" --subresource=status --type=json \
		-p "[{\"op\": \"add\", \"path\": \"/status/addresses/-\", \"value\": {\"type\": \"InternalIP\", \"address\": \"fd42::$n\"}}]" >>"$run/up.log"
done

for namespace in "$server" "$second" "$router"; do
	ip netns add "$namespace"
	ip -netns "$namespace" link set lo up
done
ip -netns "$router" link add nodes type bridge
for host in "$router 2" "$server 1" "$second 3"; do
	read -r namespace last <<<"$host"
	if [[ $namespace != "$router" ]]; then
		ip -netns "$namespace" link add nodes type veth peer name "to$last" netns "$router"
		ip -netns "$router" link set "to$last" up master nodes
	fi
	ip -netns "$namespace" address add "192.168.0.$last/16" dev nodes
	ip -netns "$namespace" address add "fd42::$last/64" dev nodes nodad
	ip -netns "$namespace" link set nodes up
done

mapfile -t nodes < <(kube get nodes -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')
renew &
started+=($!)
mkdir -p "$run/second"
for file in "$run/pods.conf" "$run/second/pods.conf"; do "$plugin" --kubeconfig="$run/kubeconfig" export -o bird --output-file "$file"; done
sed 's/192\.168\.0\.1\b/192.168.0.3/; s/"pods.conf"/"second\/pods.conf"/' "$run/server.conf" >"$run/second.conf"
if [[ $speaker == bird ]]; then bird_in "$server" server; else frr_in "$server"; fi
first=${#started[@]}
bird_in "$second" second
bird_in "$router" router
sleep 1 # each node has a Lease
keep_routes "$speaker" --watch --withdraw-after 10s >"$run/export.log" 2>&1 &
exporters=($!)
keep_routes second --watch --withdraw-after 10s >"$run/export-second.log" 2>&1 &
exporters+=($!)
started+=("${exporters[@]}")

until_routed "6 nodes" both
before=$(number)
"$chaos" burst --run-dir="$run" --node=beijing-01 --pods=100 >>"$run/up.log"
until_routed "100 pods on beijing-01" more "$before"
most=$(number)
"$chaos" burst --run-dir="$run" --node=beijing-01 --pods=0 >>"$run/up.log"
until_routed "none of them any more" fewer "$most"
gone=$(kube get node shanghai-01 -o jsonpath='{.status.addresses[0].address}')
kube delete node shanghai-01 >>"$run/up.log"
until_routed "shanghai-01 is gone" without "$gone"

number_before=$(number)
echo beijing-03 >"$run/dead"
begin=$SECONDS
until_routed "beijing-03 died" fewer "$number_before"
say "$((SECONDS - begin)) s from its last Lease to the withdrawal by both"
routes=$(routed)
echo all >"$run/dead"
sleep 25
[[ "$(routed)" == "$routes" ]] || { echo "bgp-try: routes changed though all Leases stopped" >&2; exit 1; }
say "no kubelet is heard for 25 s: the router keeps what it has"
: >"$run/dead"
until_routed "all are heard again" more "$(wc -l <<<"$routes")"

killed=("${started[@]:1:first-1}" "${exporters[0]}")
kill -9 "${killed[@]}"
wait "${killed[@]}" 2>/dev/null || true
sleep 5
until_routed "the first server was killed" true
"$chaos" burst --run-dir="$run" --node=beijing-01 --pods=100 >>"$run/up.log"
until_routed "100 pods on beijing-01 again, by the second" more "$number_before"

kill "${exporters[1]}"
wait "${exporters[1]}" || true
routes=$(routed)
"$chaos" burst --run-dir="$run" --node=beijing-02 --pods=100 >>"$run/up.log"
[[ $(exported | wc -l) -gt $(wc -l <<<"$routes") ]] || { echo "bgp-try: beijing-02 got no block" >&2; exit 1; }
[[ "$(routed)" == "$routes" ]] || { echo "bgp-try: routes changed with nobody there to change them" >&2; exit 1; }
say "export stopped: the router keeps what it has, and learns nothing new"
