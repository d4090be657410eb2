#!/bin/sh
# runtime-files.sh CHECKOUT DESTINATION: copies the part of a build that runs: the bundle, with the page's files and the eBPF programs, and
# its build information. Leaves out the modules that the bundle was made from: they are the library's.
set -eu
from=$1/dist to=$2/dist
programs=modes/ebpf/socket-balancer
mkdir -p "$to/tools/page" "$to/$programs"
cp -R "$from/bundle" "$to/"
cp -R "$from/tools/page/client" "$to/tools/page/"
cp "$from/$programs"/*.o "$to/$programs/"
cp "$from/build-info.json" "$to/"
cp "$1/package.json" "$1/LICENSE" "$1/NOTICE" "$2/"
