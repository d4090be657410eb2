#!/bin/sh
# collect-program.sh DESTINATION: copies what runs from a built checkout (the working directory): the program, its
# packages that its bundle does not hold, and the pinned Node.js without its headers. Sources, tests, types and packages for development stay behind.
set -eu

to=$1
mkdir -p "$to/node_modules/.bin"

npm prune --omit=dev --ignore-scripts
scripts/runtime-files.sh . "$to"
cp -R bin "$to/"
cp -L node_modules/.bin/node "$to/node_modules/.bin/"
cp -R node_modules/koffi node_modules/@koromix "$to/node_modules/"
cd "$to"
# What koffi is compiled from; scripts are beside it.
find node_modules -type f \( -name '*.ts' -o -name '*.cc' -o -name '*.hh' -o -name '*.inc' -o -name '*.S' -o -name '*.asm' \) -delete
find node_modules/koffi -type d \( -name doc -o -name vendor -o -name lib \) -prune -exec rm -rf {} +
chmod -R a+rX,go-w .
