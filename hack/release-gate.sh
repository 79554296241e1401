#!/usr/bin/env bash
# Ends unless a tag may become a release: changelog and chart name it, it and the
# tag of the module api are signed, and its commit is on main and passed there.
# Runs in the release workflow, before anything is built.
#
#   release-gate.sh VERSION
set -euo pipefail
version=$1
cd "$(dirname "$0")/.."

die() { echo "release: $*" >&2; exit 1; }
api() { gh api "repos/$GITHUB_REPOSITORY/$1" --jq "$2"; }

grep -q "^## \[${version#v}\]" CHANGELOG.md || die "CHANGELOG.md has no section ${version#v}"
chart=charts/cilium-pool-operator/Chart.yaml
grep -qx "version: ${version#v}" $chart && grep -qx "appVersion: $version" $chart || die "version and appVersion of $chart are not ${version#v} and $version"

commit=$(git rev-parse HEAD)
for tag in "$version" "api/$version"; do
	object=$(api "git/ref/tags/$tag" '"\(.object.type) \(.object.sha)"') || die "there is no tag $tag: make it by git tag -s, and push it"
	[[ $object == tag\ * ]] || die "$tag is not signed: make it by git tag -s"
	signature=$(api "git/tags/${object#tag }" '"\(.verification.verified) \(.verification.reason) \(.object.sha)"')
	read -r verified reason tagged <<<"$signature"
	[[ $verified == true ]] || die "the signature of $tag is not verified ($reason): sign it with a key that your account at GitHub has"
	[[ $tagged == "$commit" ]] || die "$tag is of commit $tagged, and $commit is checked out"
done

git merge-base --is-ancestor "$commit" origin/main || die "commit $commit is not on main"
for workflow in test vulnerabilities; do
	passed=$(gh run list --repo "$GITHUB_REPOSITORY" --workflow "$workflow.yaml" --branch main --event push --commit "$commit" \
		--status success --json databaseId --jq length)
	[[ $passed -gt 0 ]] || die "workflow $workflow has not passed on main for commit $commit: wait for it, or run it again"
done
echo "release: $version of commit $commit may be built"
