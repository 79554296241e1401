#!/usr/bin/env bash
# Rehearses the release of HEAD on this machine: builds all files, publishes them by
# hack/publish.sh to a registry of its own, verifies them by the commands of
# docs/contributing/release.md, installs the plugin from its archive, and upgrades from the
# previous rehearsal. All is in .run/rehearsal.
#
#   rehearsal.sh BIN HELM CRANE COSIGN ARCH
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/$1 helm=$2 crane=$3 cosign=$4 arch=$5
here=$PWD/.run/rehearsal previous=$PWD/.run/rehearsal-previous
version=v0.0.0-rehearsal.$(date -u +%Y%m%d%H%M%S)
operator=cilium-pool-operator plugin=kubectl-cilium_pool

current=begin
step() { current=$*; printf '\n=== %s\n' "$*"; }
die() { echo "rehearsal: $*" >&2; exit 1; }
finish() {
	code=$?
	[[ -z ${registry:-} ]] || kill "$registry" 2>/dev/null || true
	"$bin/chaos" down --run-dir="$here/cluster" >/dev/null 2>&1 || true
	[[ $code -eq 0 ]] || echo "rehearsal: FAILED: $current; files and logs are in .run/rehearsal" >&2
}
trap finish EXIT
"$bin/chaos" down --run-dir="$here/cluster" >/dev/null 2>&1 || true
rm -rf "$here"
mkdir -p "$here"/{bin,draft,home,krew,pulled} "$previous"

step "build $version of HEAD, for linux/$arch: a minute, the first time up to 10"
git clone --quiet "$PWD" "$here/source"
git -C "$here/source" -c user.name=rehearsal -c user.email=rehearsal@example.org tag --annotate --message="$version" "$version"
commit=$(git rev-parse HEAD)
"$crane" registry serve --address 127.0.0.1:0 >"$here/registry.log" 2>&1 &
registry=$!
for _ in {1..100}; do
	port=$(sed -n 's/.*serving on port //p' "$here/registry.log")
	[[ -z $port ]] || break
	sleep 0.1
done
[[ -n $port ]] || die "the registry does not start: see registry.log"
image=localhost:$port/cilium-pool/$operator
go run -C "$here/source/hack/release" . -version "$version" -commit "$commit" -epoch "$(git log -1 --format=%ct)" \
	-root "$here/source" -work "$here/source/.cache/release" -out "$here/source/dist" -helm "$helm" -image "$image" -only "linux/$arch"

step "publish: image, chart, signatures and files"
export HOME=$here/home DOCKER_CONFIG=$here/home HELM_REGISTRY_CONFIG=$here/home/registry.json COSIGN_PASSWORD=''
# Beside the programs of a release: a key in place of the workflow's identity, and no TLS.
wrapper() { printf '#!/usr/bin/env bash\nset -euo pipefail\n%s\n' "$2" >"$here/bin/$1" && chmod +x "$here/bin/$1"; }
wrapper cosign 'arguments=()
while (($#)); do
	case $1 in
	--certificate-identity | --certificate-oidc-issuer) shift ;;
	*) arguments+=("$1") ;;
	esac
	shift
done
case ${arguments[0]} in
verify*) exec '"'$cosign'"' "${arguments[@]}" --key '"'$here/home/cosign.pub'"' --insecure-ignore-tlog=true ;;
*) exec '"'$cosign'"' "${arguments[@]}" --key '"'$here/home/cosign.key'"' --tlog-upload=false --use-signing-config=false ;;
esac'
wrapper helm 'case "$*" in
*oci://* | "registry login"*) exec '"'$helm'"' "$@" --plain-http ;;
*) exec '"'$helm'"' "$@" ;;
esac'
wrapper gh 'for file; do [[ ! -f $file || $file == *notes.md ]] || cp "$file" '"'$here/draft'"'; done'
(cd "$HOME" && "$cosign" generate-key-pair >/dev/null 2>&1)
path=$PATH
export PATH=$here/bin:$bin:$path
(
	export GITHUB_ACTIONS=true GITHUB_ACTOR=rehearsal GITHUB_TOKEN=none GITHUB_REF=refs/tags/$version GITHUB_SERVER_URL=https://github.com \
		GITHUB_REPOSITORY=cilium-pool/$operator GITHUB_RUN_ID=1 GITHUB_RUN_ATTEMPT=1 \
		GITHUB_WORKFLOW_REF=cilium-pool/$operator/.github/workflows/release.yaml@refs/tags/$version
	"$here/source/hack/publish.sh" "$version" "$here/source/dist" "$image" "$here/bin/cosign" "$crane" "$here/bin/helm"
) >"$here/publish.log" 2>&1 || { cat "$here/publish.log"; false; }

step "verify, by the commands of docs/contributing/release.md"
commands=$(awk '/^## / {inside = $0 == "## Verify"} inside && /^```$/ {exit} code {print} inside && /^```sh/ {code = 1}' docs/contributing/release.md)
[[ $commands == *"cosign verify "* && $commands == *sha256sum* ]] || die "the commands of docs/contributing/release.md have changed: change this script too"
commands=${commands//ghcr.io\/cilium-pool\/$operator:v0.1.0/$image:$version}
(cd "$here/draft" && bash -euo pipefail -c "${commands//v0.1.0/$version}") >"$here/verified.log" 2>&1 || { cat "$here/verified.log"; false; }
grep -h ': OK$' "$here/verified.log"
# A file that somebody changed must not pass.
cp -r "$here/draft" "$here/changed"
echo >>"$here/changed/cilium-pool.yaml"
(cd "$here/changed" && sha256sum --check --quiet checksums.txt) >/dev/null 2>&1 && die "a changed file passes the checksums"

step "pull chart and image"
"$here/bin/helm" pull "oci://${image%/*}/charts/$operator" --version "${version#v}" --destination "$here/pulled"
cmp "$here/pulled/$operator-${version#v}.tgz" "$here/draft/$operator-${version#v}.tgz"
"$crane" export --platform "linux/$arch" "$image:$version" - | tar -x -C "$here/pulled"
[[ -s $here/pulled/licenses/THIRD_PARTY_LICENSES ]] || die "the image has no licences of third parties"
[[ $("$here/pulled/$operator" --version) == *"$version"* ]] || die "the image runs another version: $("$here/pulled/$operator" --version)"

step "install the plugin from its archive, as the manifest for krew says"
archive=$here/draft/${plugin}_linux_$arch.tar.gz
if PATH=$path kubectl krew version >/dev/null 2>&1; then
	KREW_ROOT=$here/krew PATH=$path kubectl krew install --manifest="$here/draft/cilium-pool.yaml" --archive="$archive"
	export PATH=$here/krew/bin:$PATH
else
	echo "this machine has no krew: checksum, archive and program are checked without it"
	sum=$(awk -v uri="/$version/${archive##*/}" '$1 == "sha256:" {sum = $2} $1 == "uri:" && index($2, uri) {print sum}' "$here/draft/cilium-pool.yaml")
	echo "$sum  $archive" | sha256sum --check --quiet
	tar -x -f "$archive" -C "$here/krew"
	export PATH=$here/krew:$PATH
fi
[[ $(kubectl cilium-pool --version) == *"$version"* ]] || die "kubectl does not run the plugin of $version: $(kubectl cilium-pool --version)"

[[ -s $previous/version ]] || { echo "no previous rehearsal: this one upgrades from itself" && keep=$here/pulled; }
keep=${keep:-$previous}
from=$(cat "$previous/version" 2>/dev/null || echo "$version")
step "upgrade from $from: install its chart, run its operator, and then the new ones"
cluster=$here/cluster
mkdir -p "$cluster/bin"
ln -s "$bin"/{etcd,kube-apiserver,kubectl} "$keep/$operator" "$cluster/bin/"
"$bin/chaos" up --run-dir="$cluster" --bin-dir="$cluster/bin" --nodes=4 >"$here/cluster.log" 2>&1 || { cat "$here/cluster.log"; false; }
export KUBECONFIG=$cluster/kubeconfig
# No kubelet runs the pods of the chart.
helm install $operator "$keep/$operator-${from#v}.tgz" --namespace kube-system --take-ownership --wait=hookOnly >"$here/install.log"
"$bin/chaos" burst --run-dir="$cluster" --bin-dir="$cluster/bin" --node=beijing-01 --pods=60
blocks=$(kubectl get podipblocks -o name | sort)
helm upgrade $operator "oci://${image%/*}/charts/$operator" --version "${version#v}" --namespace kube-system \
	--reset-then-reuse-values --wait=hookOnly >"$here/upgrade.log"
pid=$(cat "$cluster/up/$operator.pid")
readarray -d '' -t arguments <"/proc/$pid/cmdline"
kill "$pid"
tail --pid="$pid" --follow /dev/null
"$here/pulled/$operator" "${arguments[@]:1}" >"$here/operator.log" 2>&1 &
trap 'kill $! 2>/dev/null || true; finish' EXIT
"$bin/chaos" burst --run-dir="$cluster" --bin-dir="$cluster/bin" --node=beijing-01 --pods=120
lost=$(comm -23 <(echo "$blocks") <(kubectl get podipblocks -o name | sort))
[[ -z $lost ]] || die "the upgrade lost blocks: $lost"
kubectl cilium-pool version
[[ $(kubectl cilium-pool version) == *"perator"*"$version"* ]] || die "the operator that leads is not of $version"

rm -rf "$previous"
mkdir -p "$previous"
cp "$here/pulled/$operator" "$here/pulled/$operator-${version#v}.tgz" "$previous/"
echo "$version" >"$previous/version"
cat <<TEXT

rehearsed $version of commit $commit, with an upgrade from $from. Not rehearsed, as it needs the forge: signatures of the workflow's
identity and the transparency log (a key of this rehearsal signed), make release-gate, the environment, the draft. Nor: other
platforms (make reproducible PLATFORMS=all), pods of the chart (make cluster RUN=operator)$(PATH=$path kubectl krew version >/dev/null 2>&1 || echo ", krew itself").
TEXT
