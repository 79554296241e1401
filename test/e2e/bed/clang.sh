#!/usr/bin/env bash
# Wraps clang: every agent compiles the datapath, most of them the same one, and ccache
# caches the results. It does not cache standard output, where agents want the result
# (pkg/datapath/loader/compile.go, v1.20.1), so the output goes to a file first. It also
# depends on the folder of headers, which agents name after their whole configuration
# (cache.go there): headers with the same content get the same name.
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
# The folder named in debug information does not matter, and headers that an agent has
# just written are read nevertheless.
export CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
ccache "$real" "${args[@]}" "$dir/object"
cat "$dir/object"
