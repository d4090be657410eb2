/**
 * Every mode's backend as the daemon has it, over a kernel that outlives a simulated restart: this machine's, or one in
 * memory where there may be none.
 */
import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../src/async/clock.ts";
import type { Backend } from "../src/contract/backend.ts";
import { CURRENT_RELEASE } from "../src/contract/config/release.ts";
import type { Bpf } from "../src/kernel/bpf/bpf.ts";
import { kernelBpf } from "../src/kernel/bpf/kernel-bpf.ts";
import { createIptables } from "../src/kernel/iptables/exec-iptables.ts";
import type { Iptables } from "../src/kernel/iptables/iptables.ts";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import { otherNamespaces } from "../src/kernel/linked-namespaces.ts";
import { ownNetnsCookie } from "../src/kernel/netns-cookie.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import type { Nftables } from "../src/kernel/nftables/nftables.ts";
import { type Exec, execProcess } from "../src/kernel/process.ts";
import { localAddresses } from "../src/kernel/route/addresses.ts";
import { udpPeers } from "../src/kernel/sock-diag/client-sockets.ts";
import { udpDisconnector } from "../src/kernel/sock-diag/disconnect-udp.ts";
import { type Logger, silentLogger } from "../src/logging/logger.ts";
import { detectorFor } from "../src/model/local-traffic-detector.ts";
import { nodePortAddresses } from "../src/model/node-port-addresses.ts";
import { EbpfBackend } from "../src/modes/ebpf/backend.ts";
import { PodNamespaces } from "../src/modes/ebpf/pod-namespaces.ts";
import { SocketPath } from "../src/modes/ebpf/socket-path.ts";
import { IptablesBackend } from "../src/modes/iptables/backend.ts";
import type { PlanConfig } from "../src/modes/iptables/plan-options.ts";
import { BackendRig as IpvsRig } from "../src/modes/ipvs/testing/backend-rig.ts";
import { MemoryNode } from "../src/modes/ipvs/testing/memory-node.ts";
import { KernelspaceRig, newHost } from "../src/modes/kernelspace/testing/kernelspace-rig.ts";
import { NftablesBackend } from "../src/modes/nftables/backend.ts";
import { LAYOUT_NAMES, type LayoutName } from "../src/modes/nftables/layout-name.ts";
import { TABLE } from "../src/modes/nftables/names.ts";
import { BackendRig as UserspaceRig } from "../src/modes/userspace/testing/backend-rig.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { SyncDriver } from "../testkit/dataplane/sync-driver.ts";
import { MemoryIptables } from "../testkit/fakes/iptables/memory-iptables.ts";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import { NODE_NAME } from "./cluster.ts";

const NODE_IP = "192.168.0.2" as IpAddress; // canonical

/** The configuration of all measurements. */
export function benchConfig(): Omit<PlanConfig, "localhostNodePorts" | "conntrackLiberal"> {
  const { detector } = detectorFor("IPv4", {
    mode: "ClusterCIDR",
    clusterCIDRs: ["10.128.0.0/9"],
    podCIDRs: [],
    bridgeInterface: "",
    interfaceNamePrefix: "",
  });
  const mark = { masqueradeMark: 1 << 14, masqueradeAll: false, hashSeed: 1 };
  return { family: "IPv4", nodeName: NODE_NAME, nodeIP: NODE_IP, ...mark, detector };
}

/** A rejection by the kernel ends the bench. */
export function nftBackend(layout: LayoutName, nft = openTable()): NftablesBackend {
  const fail = (what: string) => ({
    inc: () => {
      throw new Error(`a ${what} was refused`);
    },
  });
  return new NftablesBackend({
    config: { ...benchConfig(), release: CURRENT_RELEASE },
    layout,
    nft,
    nodePortIPs: async () => ({ kind: "ips", ips: [NODE_IP] }),
    metrics: { syncFailures: fail("sync"), cleanupFailures: fail("deletion") },
    log: silentLogger,
  });
}

/** The mode's table, in this process's network namespace. */
export function openTable(ruleset = openNetlinkRuleset()): Nftables {
  return ruleset.open({ family: "ip", table: TABLE });
}

export const BACK_ENDS = ["legacy", "nft"] as const;
export type BackEnd = (typeof BACK_ENDS)[number];

type NftReader = NonNullable<Parameters<typeof createIptables>[0]["nftReader"]>;

export async function openIptables(
  backEnd: BackEnd,
  exec: Exec = execProcess,
  nftReader: NftReader = () => import("../src/kernel/iptables/nft-chains.ts"),
): Promise<Iptables> {
  const binaries = binariesOf("IPv4", backEnd);
  return await createIptables({ family: "IPv4", exec, log: silentLogger, binaries, nftReader });
}

export function iptablesBackend(iptables: Iptables): IptablesBackend {
  return new IptablesBackend({
    config: { ...benchConfig(), localhostNodePorts: false, conntrackLiberal: false },
    iptables,
    counters: undefined,
    nodePortIPs: () => Promise.resolve({ kind: "all" }),
    metrics: { restoreFailures: { inc() {} }, partialRestoreFailures: { inc() {} }, setTotal() {}, setLast() {} },
    monitor: () => Promise.resolve(),
    log: silentLogger,
  });
}

/** Any error ends the bench: figures of a mode that does not work mean nothing. */
const log: Logger = {
  ...silentLogger,
  error: (message, error) => {
    throw new Error(`${message}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  },
};

/** Every network namespace that a device of this one leads to is a pod. */
function allLinked(): PodNamespaces {
  return new PodNamespaces({
    obstacle: () => undefined,
    others: otherNamespaces,
    routes: async () => new Map(),
    watch: () => Promise.resolve(),
    podCgroups: () => new Set(),
    networks: [],
    detector: { kind: "interface-prefix", prefix: "" },
    isForHostOnly: false,
    clock: systemClock,
    log,
  });
}

/** Programs at a cgroup's sockets, in front of a packet path. */
export function ebpfBackend(packetPath: Backend, cgroup: string, bpf: Bpf = kernelBpf()): EbpfBackend {
  const sockets = new SocketPath({
    family: "IPv4",
    bpf,
    cgroup: { ok: true, path: cgroup },
    nodeName: NODE_NAME,
    validForMs: 600_000,
    nodePortAddresses: nodePortAddresses("IPv4", []),
    programs: () => ({ hostCookie: ownNetnsCookie() }),
    pods: allLinked(),
    disconnector: udpDisconnector(),
    udpPeers,
    localAddresses,
    addressWatch: { watch: () => Promise.resolve() },
    clock: systemClock,
    monotonicNs: process.hrtime.bigint,
    identity: () => ({ owner: ownNetnsCookie(), start: 1n }),
    metrics: { attached: { set() {} }, passedPorts: { set() {} }, disconnected: { inc() {} } },
    log,
  });
  return new EbpfBackend(packetPath, sockets);
}

/** A cgroup without processes, removed when this process exits. */
export function ownCgroup(): string {
  const mount = cgroupMount();
  if (mount === undefined) throw new Error("no cgroup2 file system is mounted");
  const cgroup = join(mount, `kpts-bench-${process.pid}`);
  mkdirSync(cgroup);
  process.once("exit", () => rmdirSync(cgroup));
  return cgroup;
}

/** Layouts of nftables, tools of iptables. */
export const BENCH_MODES = [
  ...LAYOUT_NAMES,
  "ebpf",
  "iptables-nft",
  "iptables-legacy",
  "ipvs",
  "userspace",
  "kernelspace",
] as const;
export type BenchMode = (typeof BENCH_MODES)[number];

/** Empty: the bench drives the backends. */
const driver = new SyncDriver({ services: new Map(), endpoints: new Map() });

/** @returns a function that gives the next process's backend, over the same kernel. */
export async function openMode(mode: BenchMode): Promise<() => Backend> {
  switch (mode) {
    case "Compatible":
    case "Flat":
      return () => nftBackend(mode);
    case "ebpf": {
      const cgroup = ownCgroup();
      return () => ebpfBackend(nftBackend("Flat"), cgroup);
    }
    case "iptables-nft":
    case "iptables-legacy": {
      const iptables = await openIptables(mode === "iptables-nft" ? "nft" : "legacy");
      return () => iptablesBackend(iptables);
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
