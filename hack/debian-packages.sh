#!/usr/bin/env bash
# Installs packages from Debian whose command is not there: PACKAGE=COMMAND...
# Does nothing where all of them are there, or where it may not.
set -euo pipefail

missing=()
for need in "$@"; do
	PATH=/usr/lib/llvm-19/bin:/usr/sbin:/sbin:$PATH command -v "${need#*=}" >/dev/null || missing+=("${need%%=*}")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "not installed, and not to be installed from here: ${missing[*]}" >&2
	exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" ||
	{ apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }
