#!/usr/bin/env bash
# Stands before clang: every agent compiles the datapath, most of them the same,
# and ccache keeps what was compiled. It keeps nothing that goes to standard
# output, where agents want it (pkg/datapath/loader/compile.go, v1.20.1), so that
# goes to a file first.
set -euo pipefail
real=/usr/lib/llvm-19/bin/clang
[[ ${*: -2} == "-o -" ]] || exec "$real" "$@"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The folder that debug information names does not matter, and headers that an
# agent has just written are read all the same.
export CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
ccache "$real" "${@:1:$#-1}" "$dir/object"
cat "$dir/object"
