#!/usr/bin/env bash
# Installs from Debian what a cilium-agent calls: a compiler for its datapath
# and the tools for links, packet filters and address sets.
exec "$(dirname "$0")/debian-packages.sh" clang-19=clang llvm-19=llvm-objcopy ccache=ccache iproute2=ip \
	iptables=iptables ipset=ipset util-linux=nsenter
