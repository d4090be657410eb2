/** What only some kernels have: reasons to skip a test, asked when the test file is read. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import type { NetworkNamespace } from "../net/network-namespace.ts";

/** Loads the module where it is one. Whether this network namespace has IPVS is seen by its list of virtual servers. */
export function skipWithoutIpvs(): string | false {
  spawnSync("modprobe", ["-q", "ip_vs"]);
  return existsSync("/proc/net/ip_vs")
    ? false
    : "this kernel has no IPVS; the virtual machine has: testkit/vm/README.md";
}

/** Tries it in the current network namespace, and tidies up. */
export function skipWithoutDummyDevices(): string | false {
  const name = "kpts-probe";
  if (spawnSync("ip", ["link", "add", name, "type", "dummy"]).status !== 0) {
    return "this kernel has no dummy devices; the virtual machine has: testkit/vm/README.md";
  }
  spawnSync("ip", ["link", "delete", name]);
  return false;
}

/** Whether the kernel has nftables for IPv4, which user-mode Linux has not. Tries it in the namespace, and tidies up. */
export async function hasNftables(namespace: NetworkNamespace): Promise<boolean> {
  try {
    await namespace.exec(["nft", "add table ip kpts-probe; delete table ip kpts-probe"]);
    return true;
  } catch {
    return false;
  }
}
