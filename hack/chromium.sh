#!/usr/bin/env bash
# Installs Chromium from Debian, for the tests of the address map. Does nothing
# where it or Google's Chrome is there; fails where it may not, as nothing would be
# tested then.
set -euo pipefail

command -v chromium >/dev/null || command -v google-chrome >/dev/null && exit 0
if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "chromium is not installed, and not to be installed from here: as root on Debian, apt-get install chromium" >&2
	exit 1
fi
echo "installing chromium"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends chromium fonts-dejavu-core ||
	{ apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; }
