#!/bin/sh
# link-iptables.sh ROOT: gives the iptables tools of an image their names: those of each kind (iptables-nft-save), the
# plain ones once per kind in a folder that goes into PATH, and the plain ones for who is not the daemon.
set -eu

root=$1
for kind in nft legacy; do
  mkdir -p "$root/usr/local/lib/iptables/$kind"
  for tool in iptables ip6tables; do
    for part in "" -save -restore; do
      ln -s "xtables-$kind-multi" "$root/usr/sbin/$tool-$kind$part"
      ln -s "/usr/sbin/xtables-$kind-multi" "$root/usr/local/lib/iptables/$kind/$tool$part"
      ln -sf /usr/local/bin/iptables-of-this-node "$root/usr/sbin/$tool$part"
    done
  done
done
