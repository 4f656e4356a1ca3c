#!/usr/bin/env bash
# Debian's Chromium and its driver, for the browser tests; does nothing if they are there or cannot be installed.
set -euo pipefail
command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  # A list of packages that cannot be renewed may still name them.
  apt-get update -qq || true
  apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null && exit 0
fi
echo "chromium is not installed; the browser tests will be skipped (as root: apt-get install chromium chromium-driver)"
