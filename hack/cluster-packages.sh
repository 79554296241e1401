#!/usr/bin/env bash
# Installs from Debian what the nodes of the real cluster call: runc, and the
# tools for links, packet filters and namespaces. debootstrap makes the image of
# Cilium. Does nothing where all of it is there, or where it may not.
set -euo pipefail

missing=()
need() { # need PACKAGE COMMAND
	PATH=/usr/sbin:/sbin:$PATH command -v "$2" >/dev/null || missing+=("$1")
}
need runc runc
need debootstrap debootstrap
need iproute2 ip
need iptables iptables
need conntrack conntrack
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
