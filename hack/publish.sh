#!/usr/bin/env bash
# Publishes what "make snapshot" built for the tag that is checked out: image and
# chart to the registry, signed without a key of ours (the workflow's identity),
# with SBOM and provenance; all files to a draft of a GitHub release. Runs in the
# release workflow, after hack/release-gate.sh, on another machine than the build. It
# ends before the first push where anything is not as it must be.
#
#   publish.sh VERSION DIST IMAGE COSIGN CRANE HELM
set -euo pipefail
version=$1 dist=$2 image=$3 cosign=$4 crane=$5 helm=$6
cd "$(dirname "$0")/.."

die() { echo "publish: $*" >&2; exit 1; }
[[ ${GITHUB_ACTIONS:-} == true ]] || die "only the release workflow publishes: signatures are its identity's"
[[ "$(git describe --exact-match --tags --match 'v*' 2>/dev/null)" == "$version" ]] || die "$version is not the tag of what is checked out"
[[ -z "$(git status --porcelain)" ]] || die "files are changed"
(cd "$dist" && sha256sum --check --quiet checksums.txt)

registry=${image%%/*} work=.cache/release
# The file that checksums.txt names, and no other, is pushed.
rm -rf "$work/layout"
mkdir -p "$work/layout"
tar -xf "$dist/cilium-pool-operator_image.tar" -C "$work/layout"
"$crane" auth login "$registry" --username "$GITHUB_ACTOR" --password-stdin <<<"$GITHUB_TOKEN"
"$helm" registry login "$registry" --username "$GITHUB_ACTOR" --password-stdin <<<"$GITHUB_TOKEN"

# https://slsa.dev/spec/v1.0/provenance
cat >"$work/provenance.json" <<JSON
{
  "buildDefinition": {
    "buildType": "https://actions.github.io/buildtypes/workflow/v1",
    "externalParameters": {"workflow": {"ref": "$GITHUB_REF", "repository": "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY", "path": ".github/workflows/release.yaml"}},
    "resolvedDependencies": [{"uri": "git+$GITHUB_SERVER_URL/$GITHUB_REPOSITORY@$GITHUB_REF", "digest": {"gitCommit": "$(git rev-parse HEAD)"}}]
  },
  "runDetails": {
    "builder": {"id": "$GITHUB_SERVER_URL/$GITHUB_WORKFLOW_REF"},
    "metadata": {"invocationId": "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID/attempts/$GITHUB_RUN_ATTEMPT"}
  }
}
JSON

digest=$("$crane" push --index "$work/layout" "$image:$version")
digest=$image@${digest#*@}
"$cosign" sign --yes --recursive "$digest"
"$cosign" attest --yes --type slsaprovenance1 --predicate "$work/provenance.json" "$digest"
for sbom in "$dist"/cilium-pool-*_linux_*.cdx.json; do
	"$cosign" attest --yes --type cyclonedx --predicate "$sbom" "$digest"
done

charts=${image%/*}/charts
chart=$("$helm" push "$dist/cilium-pool-operator-${version#v}.tgz" "oci://$charts" 2>&1 | tee /dev/stderr | awk '/^Digest:/ {print $2}')
[[ -n $chart ]] || die "the chart was not pushed"
"$cosign" sign --yes "$charts/cilium-pool-operator@$chart"

# The checksums stand for all files.
"$cosign" sign-blob --yes --bundle "$dist/checksums.txt.sigstore.json" "$dist/checksums.txt"
"$cosign" attest-blob --yes --type slsaprovenance1 --predicate "$work/provenance.json" \
	--bundle "$dist/provenance.sigstore.json" "$dist/checksums.txt"

awk -v section="## [${version#v}]" 'index($0, "## [") == 1 {inside = index($0, section) == 1; next} inside' CHANGELOG.md >"$work/notes.md"
gh release create "$version" --draft --verify-tag --title "$version" --notes-file "$work/notes.md" "$dist"/*
