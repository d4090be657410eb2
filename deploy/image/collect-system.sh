#!/bin/sh
# collect-system.sh DESTINATION FILE…: copies programs (and other files or folders) of this Debian system to another
# root folder, with the shared libraries they need, and what is owed to the packages they come from: the licence, and
# the entry by which image scanners know package and version.
set -eu

to=$1
shift

mkdir -p "$to/usr/bin" "$to/usr/sbin" "$to/usr/lib" "$to/usr/lib64" "$to/run" "$to/var/lib/dpkg/status.d" "$to/tmp"
mkdir -p "$to/proc" "$to/sys" "$to/dev" "$to/etc"
chmod 1777 "$to/tmp"
for name in bin sbin lib lib64; do
  ln -s "usr/$name" "$to/$name"
done
ln -s ../run "$to/var/run"

# The libraries of programs and libraries, as the loader finds them.
libraries_of() {
  find "$@" -type f \( -perm /111 -o -name '*.so*' -o -name '*.node' \) -exec ldd {} \; 2>/dev/null |
    grep -oE '/[^ ]+' || true
}

# Copies files under the names they have. What a link leads to comes along.
{ find "$@" \( -type f -o -type l \) && libraries_of $(readlink -f "$@"); } | sort -u | while read -r file; do
  real=$(readlink -f "$file")
  for name in "$file" "$real"; do
    mkdir -p "$to$(dirname "$name")"
    cp -P "$name" "$to$name"
  done
  # A package may know the file by the name it had before /lib became a link to /usr/lib.
  case $real in
    /opt/*) ;;
    *) dpkg -S "$real" "${real#/usr}" 2>/dev/null | cut -d: -f1 ;;
  esac
done | sort -u >"$to/tmp/packages"

while read -r package; do
  dpkg-query -s "$package" >"$to/var/lib/dpkg/status.d/$package"
  mkdir -p "$to/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$to/usr/share/doc/$package/"
done <"$to/tmp/packages"
rm "$to/tmp/packages"
