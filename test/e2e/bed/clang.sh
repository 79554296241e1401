#!/usr/bin/env bash
# Stands before clang: every agent compiles the datapath, most of them the same,
# and ccache keeps what was compiled. It keeps nothing that goes to standard
# output, where agents want it (pkg/datapath/loader/compile.go, v1.20.1), so that
# goes to a file first. And it minds the folder of headers, which agents name
# after all their configuration (cache.go there): headers of the same content get
# one name.
set -euo pipefail
real=/usr/lib/llvm-19/bin/clang
[[ ${*: -2} == "-o -" ]] || exec "$real" "$@"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
args=()
for arg in "${@:1:$#-1}"; do
	if [[ $arg == -I*/templates/* ]]; then
		headers=${arg#-I}
		same=/run/compiler/$(cat "$headers"/*.h | sha256sum | cut -d' ' -f1)
		if [[ ! -d $same ]]; then
			mkdir "$dir/headers"
			cp "$headers"/*.h "$dir/headers"
			mv -T "$dir/headers" "$same" 2>/dev/null || [[ -d $same ]] # another was faster
		fi
		arg=-I$same
	fi
	args+=("$arg")
done
# The folder that debug information names does not matter, and headers that an
# agent has just written are read all the same.
export CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
ccache "$real" "${args[@]}" "$dir/object"
cat "$dir/object"
