#!/usr/bin/env bash
# debian.sh FOLDER: a small Debian with the programs that cilium-agent calls, as
# the base of Cilium's image. Of clang's packages it takes the programs alone:
# installed, they would bring a whole development environment.
set -euo pipefail
folder=$1
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
debs=(clang-19 llvm-19 libclang-cpp19 libllvm19 libz3-4 libedit2 libxml2 libffi8 libbsd0 libicu72 libmd0 libelf1)

[[ $EUID -eq 0 ]] || { echo "debian.sh: must be root" >&2; exit 1; }
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$(dirname "$folder")/debian.XXXXXX")
trap 'rm -rf "$work"' EXIT

debootstrap --variant=minbase --include=iproute2,iptables,ipset,kmod,ca-certificates "$release" "$work/root" >"$work/log" ||
	{ tail -n 20 "$work/log" >&2; exit 1; }
mkdir "$work/debs" "$work/clang"
chmod 755 "$work"
(cd "$work/debs" && { apt-get download -qq "${debs[@]}" || { apt-get update -qq && apt-get download -qq "${debs[@]}"; }; })
for deb in "$work"/debs/lib*.deb; do dpkg -x "$deb" "$work/root"; done
for deb in "$work"/debs/clang-19* "$work"/debs/llvm-19*; do dpkg -x "$deb" "$work/clang"; done
mkdir -p "$work/root/usr/lib/llvm-19/bin"
for program in clang llc llvm-objcopy; do
	cp -L "$work/clang/usr/lib/llvm-19/bin/$program" "$work/root/usr/lib/llvm-19/bin/"
	ln -sf "/usr/lib/llvm-19/bin/$program" "$work/root/usr/local/bin/$program"
done
rm -rf "$work/root"/usr/share/{doc,man,locale,info} "$work/root"/var/cache/apt/* "$work/root"/var/lib/apt/lists/*
chroot "$work/root" clang --version >/dev/null

rm -rf "$folder"
mv "$work/root" "$folder"
touch "$folder/etc/debian_version"
