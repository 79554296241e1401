#!/usr/bin/env bash
# Installs from Debian what the nodes of the real cluster call: runc, and the
# tools for links, packet filters and namespaces; jq is for pages. debootstrap makes the image of
# Cilium.
exec "$(dirname "$0")/debian-packages.sh" runc=runc debootstrap=debootstrap iproute2=ip iptables=iptables \
	conntrack=conntrack util-linux=nsenter jq=jq
