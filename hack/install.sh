#!/usr/bin/env bash
# Installs, upgrades or removes this checkout's chart in the cluster of the current
# kubeconfig, by Helm.
#
#   install.sh install|upgrade|uninstall NAMESPACE HELM CRANE [FLAG OF HELM...]
#
# LOADED=1: the nodes have the image, so no registry is asked for it.
set -euo pipefail
verb=$1 namespace=$2 helm=$3 crane=$4
shift 4
cd "$(dirname "$0")/.."
release=cilium-pool-operator

command -v kubectl >/dev/null || { echo "$verb: no kubectl on the PATH" >&2; exit 2; }
server=$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}' 2>/dev/null) && [[ -n $server ]] || {
	echo "$verb: no cluster: set KUBECONFIG, or choose a context by kubectl config use-context" >&2
	exit 2
}
echo "$verb: $release in namespace $namespace of $server ($(kubectl config current-context))"

if [[ $verb == uninstall ]]; then
	"$helm" uninstall $release --namespace "$namespace" --wait --timeout 5m "$@"
	echo "CRDs, pools and blocks stay, and nodes keep their addresses: docs/operations.md#uninstall removes the rest."
	exit
fi

if [[ $verb == upgrade ]]; then
	set -- --reset-then-reuse-values "$@"
fi
run=("$helm" "$verb" $release charts/$release --namespace "$namespace")
# It runs the chart's preflight, too.
manifest=$("${run[@]}" "$@" --dry-run=server)
image=$(sed -n 's/^ *image: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' <<<"$manifest" | head -n 1)
if [[ -z ${LOADED:-} ]] && ! "$crane" digest "$image" >/dev/null 2>&1; then
	cat >&2 <<TEXT
$verb: no registry gave $image to this machine. Only releases have a published image. Build one, and push it
to a registry that your nodes reach:

  make push IMAGE=registry.example.org/team/cilium-pool-operator
  make $verb IMAGE=registry.example.org/team/cilium-pool-operator VALUES=values.yaml

Or load the file that make image writes on every node (docs/install.md), and run make $verb LOADED=1.
TEXT
	exit 1
fi

echo "$verb: waits until the operator is ready, up to 5 minutes"
"${run[@]}" --wait --timeout 5m "$@" || {
	code=$?
	echo "$verb: see kubectl -n $namespace get pods,events; then make upgrade tries again" >&2
	exit $code
}
