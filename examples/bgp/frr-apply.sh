#!/bin/sh
# What kubectl cilium-pool export runs for FRR. frr-reload.py (Debian:
# frr-pythontools) compares the running configuration with a whole one, and changes
# only what differs: routes that are gone leave too, as they would not by vtysh -f.
#
#   kubectl cilium-pool export -o frr --watch --output-file pods.frr \
#     --exec 'examples/bgp/frr-apply.sh examples/bgp/frr.conf pods.frr'
#
# More arguments go to frr-reload.py.
set -eu
base=$1 routes=$2
shift 2
whole=$(mktemp)
trap 'rm -f "$whole"' EXIT
cat "$base" "$routes" >"$whole"
/usr/lib/frr/frr-reload.py --reload "$@" "$whole"
