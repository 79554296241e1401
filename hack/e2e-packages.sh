#!/usr/bin/env bash
# Installs from Debian what a cilium-agent calls: a compiler for its datapath
# and the tools for links, packet filters and address sets. Does nothing where
# all of it is there, or where it may not.
set -euo pipefail

missing=()
need() { # need PACKAGE COMMAND
	PATH=/usr/lib/llvm-19/bin:/usr/sbin:/sbin:$PATH command -v "$2" >/dev/null || missing+=("$1")
}
need clang-19 clang
need llvm-19 llvm-objcopy
need ccache ccache
need iproute2 ip
need iptables iptables
need ipset ipset
need util-linux nsenter
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "not installed, and not to be installed from here: ${missing[*]}" >&2
	exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" ||
	{ apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }
