#!/usr/bin/env bash
# Writes FILE.mod and FILE.sum, by which the programs of SOURCE, a folder of Go's module cache, are built: SOURCE's own,
# but Kubernetes' staging folders are the modules published from them; and where proxies lack a commit or a fork that
# Cilium requires, a release takes its place.
# Usage: hack/source-mod.sh SOURCE FILE.mod
set -euo pipefail
mkdir -p "$(dirname "$2")"
case $1 in
*/kubernetes@v1.*)
	sed "/staging/d; /sample-/d; s| v0\.0\.0\$| v0.${1##*@v1.}|" "$1/go.mod" >"$2"
	;;
*/cilium@*)
	go mod edit -print \
		-replace github.com/osrg/gobgp/v4@v4.6.1-0.20260630022313-d6dee8360046=github.com/osrg/gobgp/v4@v4.7.0 \
		-replace k8s.io/endpointslice@v0.33.9=k8s.io/endpointslice@v0.33.5 \
		-replace sigs.k8s.io/mcs-api/controllers@v0.5.2=sigs.k8s.io/mcs-api/controllers@v0.0.0-20260403094305-4b9911b73f14 \
		-dropreplace k8s.io/apimachinery "$1/go.mod" >"$2"
	;;
esac
cat "$1/go.sum" hack/make/pinned.sum >"${2%.mod}.sum"
