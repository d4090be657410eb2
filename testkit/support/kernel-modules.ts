/** What only some kernels have: reasons to skip a test, evaluated when the test file is loaded. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import type { NetworkNamespace } from "../net/network-namespace.ts";

/** Loads it if it is a module. The list of virtual servers shows whether this network namespace has IPVS. */
export function skipWithoutIpvs(): string | false {
  spawnSync("modprobe", ["-q", "ip_vs"]);
  return existsSync("/proc/net/ip_vs")
    ? false
    : "this kernel has no IPVS; the virtual machine has: testkit/vm/README.md";
}

/** Tries it in the current network namespace, and cleans up. */
export function skipWithoutDummyDevices(): string | false {
  const name = "kpts-probe";
  if (spawnSync("ip", ["link", "add", name, "type", "dummy"]).status !== 0) {
    return "this kernel has no dummy devices; the virtual machine has: testkit/vm/README.md";
  }
  spawnSync("ip", ["link", "delete", name]);
  return false;
}

/** Whether the kernel has nftables for IPv4, which user-mode Linux lacks. Tries it in the namespace, and cleans up. */
export async function hasNftables(namespace: NetworkNamespace): Promise<boolean> {
  try {
    await namespace.exec(["nft", "add table ip kpts-probe; delete table ip kpts-probe"]);
    return true;
  } catch {
    return false;
  }
}
