#!/usr/bin/env bash
# cilium.sh ROOTFS PROGRAMS SOURCE VERSION OUT: the image of cilium-agent and of
# cilium-operator, under the names that Cilium's chart asks for. One image for
# both, as the operator built here is linked with glibc.
set -euo pipefail
rootfs=$1 programs=$2 source=$3 version=$4 out=$5
here=$(cd "$(dirname "$0")/../../.." && pwd)

for program in agent dbg mount sysctlfix health-responder; do
	install -m755 "$programs/cilium-$program" "$rootfs/usr/bin/"
done
install -m755 "$programs/cilium-operator" "$rootfs/usr/bin/cilium-operator-generic"
mkdir -p "$rootfs/opt/cni/bin" "$rootfs/var/lib/cilium" "$rootfs/home/cilium"
install -m755 "$programs/cilium-cni" "$rootfs/opt/cni/bin/"
install -m755 "$source"/images/cilium/init-container.sh "$source"/plugins/cilium-cni/{install-plugin,cni-uninstall}.sh "$rootfs/"
rm -rf "$rootfs/var/lib/cilium/bpf"
cp -r "$programs/bpf" "$rootfs/var/lib/cilium/bpf"
rm -rf "$rootfs/var/lib/cilium/bpf/tests"
go run -C "$here/hack/image" . -folder "$rootfs" -platform "linux/$(go env GOARCH)" -out "$out" \
	-tag "quay.io/cilium/cilium:$version,quay.io/cilium/operator-generic:$version"
