#!/bin/sh
# runtime-files.sh CHECKOUT DESTINATION: copies what of a build runs: the bundle, the files of the page and the eBPF programs beside it, and
# who it is. The modules that the bundle was made from stay behind: they are the library's.
set -eu
from=$1/dist to=$2/dist
mkdir -p "$to/page" "$to/kernel/bpf/socket-balancer"
cp -R "$from/bundle" "$to/"
cp -R "$from/page/client" "$to/page/"
cp "$from"/kernel/bpf/socket-balancer/*.o "$to/kernel/bpf/socket-balancer/"
cp "$from/build-info.json" "$to/"
cp "$1/package.json" "$1/LICENSE" "$1/NOTICE" "$2/"
