/** Every mode over a kernel that stays while its process is another one: its own where this machine has it, otherwise one in memory. */

import { BackendRig as IpvsRig } from "../src/dataplane/ipvs/testing/backend-rig.ts";
import { MemoryNode } from "../src/dataplane/ipvs/testing/memory-node.ts";
import { KernelspaceRig, newHost } from "../src/dataplane/kernelspace/testing/kernelspace-rig.ts";
import { LAYOUT_NAMES, type LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { BackendRig as UserspaceRig } from "../src/dataplane/userspace/testing/backend-rig.ts";
import { createIptables } from "../src/kernel/iptables/exec-iptables.ts";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { execProcess } from "../src/kernel/process.ts";
import { silentLogger } from "../src/logging/logger.ts";
import type { Backend } from "../src/sync/backend.ts";
import { SyncDriver } from "../testkit/dataplane/sync-driver.ts";
import { MemoryIptables } from "../testkit/fakes/iptables/memory-iptables.ts";
import { EbpfSubject, ownCgroup } from "./ebpf-subject.ts";
import { benchBackend } from "./nftables-subject.ts";
import { benchIptablesBackend } from "./subject.ts";

export const LIMIT_MODES = [
  ...LAYOUT_NAMES,
  "ebpf",
  "iptables-nft",
  "iptables-legacy",
  "ipvs",
  "userspace",
  "kernelspace",
] as const;
export type LimitMode = (typeof LIMIT_MODES)[number];

/** Nothing: backends are driven by the bench. */
const driver = new SyncDriver({ services: new Map(), endpoints: new Map() });

const nftBackend = (layout: LayoutName): Backend =>
  benchBackend(openNetlinkRuleset().open({ family: "ip", table: TABLE }), layout);

/** @returns the backend of the next process, over the same kernel. */
export async function openLimitMode(mode: LimitMode): Promise<() => Backend> {
  switch (mode) {
    case "Compatible":
    case "Flat":
      return () => nftBackend(mode);
    case "ebpf": {
      const cgroup = ownCgroup();
      return () => new EbpfSubject(1, nftBackend("Flat"), cgroup).backend;
    }
    case "iptables-nft":
    case "iptables-legacy": {
      const binaries = binariesOf("IPv4", mode === "iptables-nft" ? "nft" : "legacy");
      const nftReader = () => import("../src/kernel/iptables/nft-chains.ts");
      const options = { family: "IPv4", exec: execProcess, log: silentLogger, binaries, nftReader } as const;
      const iptables = await createIptables(options);
      return () => benchIptablesBackend(iptables);
    }
    case "ipvs": {
      const node = new MemoryNode("IPv4");
      return () => new IpvsRig(driver, { node }).backend;
    }
    case "userspace": {
      const iptables = new MemoryIptables("IPv4");
      return () => new UserspaceRig({ iptables }).backend;
    }
    case "kernelspace": {
      const host = newHost();
      return () => new KernelspaceRig(driver, { host }).backend;
    }
  }
}
