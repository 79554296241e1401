#!/usr/bin/env bash
# Tries examples/bgp: prefixes of a real control plane reach a router's kernel by
# BGP, and leave it when their blocks go. Two network namespaces of this machine
# are the route server and the router. Needs root, iproute2 and BIRD 2. Nothing
# runs on; logs are in RUN-DIR.
#
#   bgp-try.sh DEMO PLUGIN RUN-DIR
set -euo pipefail
demo=$1 plugin=$2 run=$3
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin

for program in ip bird birdc; do
	command -v "$program" >/dev/null || { echo "bgp-try: $program is not here: apt-get install bird2 iproute2" >&2; exit 2; }
done
[[ $EUID -eq 0 ]] || { echo "bgp-try: must be root, for network namespaces" >&2; exit 2; }

server=cpo-bgp-server-$$ router=cpo-bgp-router-$$
started=()
cleanup() {
	local code=$?
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	"$demo" down --run-dir="$run" >/dev/null || true
	ip netns delete "$server" 2>/dev/null || true
	ip netns delete "$router" 2>/dev/null || true
	[[ $code -eq 0 ]] || tail -n 20 "$run"/*.log >&2 || true
	exit "$code"
}
trap cleanup EXIT

say() { printf '%5ds  %s\n' "$SECONDS" "$*"; }

# exported and routed are the prefixes with their next hops: what is to be, and
# what the router's kernel has.
exported() { "$plugin" --kubeconfig="$run/kubeconfig" export --format csv | awk -F, 'NR > 1 {print $1, $3}' | sort; }
routed() { ip -netns "$router" -4 route show proto bird | awk '{print $1, $3}' | sort; }
number() { routed | wc -l; }

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
		sleep 0.2
	done
	say "$what: the router has $(number) prefixes, all as exported"
}
some() { [[ $(number) -gt 0 ]]; }
more() { [[ $(number) -gt $1 ]]; }
fewer() { [[ $(number) -lt $1 ]]; }

bird_in() { # NAMESPACE NAME
	ip netns exec "$1" bird -f -c "$run/$2.conf" -s "$run/$2.ctl" -P "$run/$2.pid" 2>"$run/$2.log" &
	started+=($!)
}

mkdir -p "$run"
run=$(cd "$run" && pwd)
cp "$here"/examples/bgp/{server,router}.conf "$run"
say "starting a control plane, the operator and 6 nodes"
"$demo" up --run-dir="$run" --nodes=6 >"$run/up.log"

ip netns add "$server"
ip netns add "$router"
ip -netns "$server" link add nodes type veth peer name nodes netns "$router"
ip -netns "$server" address add 192.168.0.1/16 dev nodes
ip -netns "$router" address add 192.168.0.2/16 dev nodes
for namespace in "$server" "$router"; do ip -netns "$namespace" link set nodes up; done

"$plugin" --kubeconfig="$run/kubeconfig" export --format bird --output-file "$run/pods.conf"
bird_in "$server" server
bird_in "$router" router
"$plugin" --kubeconfig="$run/kubeconfig" export --format bird --watch --output-file "$run/pods.conf" \
	--exec "birdc -s $run/server.ctl configure" >"$run/export.log" 2>&1 &
exporter=$!
started+=("$exporter")

until_routed "6 nodes" some
before=$(number)
"$demo" burst --run-dir="$run" --node=beijing-01 --pods=100 >>"$run/up.log"
until_routed "100 pods on beijing-01" more "$before"
most=$(number)
"$demo" burst --run-dir="$run" --node=beijing-01 --pods=0 >>"$run/up.log"
until_routed "none of them any more" fewer "$most"

kill "$exporter"
wait "$exporter" || true
routes=$(routed)
"$demo" burst --run-dir="$run" --node=beijing-02 --pods=100 >>"$run/up.log"
[[ $(exported | wc -l) -gt $(wc -l <<<"$routes") ]] || { echo "bgp-try: beijing-02 got no block" >&2; exit 1; }
[[ "$(routed)" == "$routes" ]] || { echo "bgp-try: routes changed with nobody there to change them" >&2; exit 1; }
say "export stopped: the router keeps what it has, and learns nothing new"
