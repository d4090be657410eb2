/** Assembles the eBPF mode: the packet path of the nftables mode, and programs at the sockets of the node's processes. */
import { readFileSync } from "node:fs";
import type { Timer } from "../../async/clock.ts";
import { COUNTED } from "../../contract/config/config.ts";
import type { ModeRuntime, NodeContext, OpenMode } from "../../contract/dataplane.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { cgroup2Mounts, findCgroupRoot, podCgroups } from "../../kernel/bpf/places.ts";
import { FolderInUse, FolderLock } from "../../kernel/folder-lock.ts";
import { otherNamespaces, outputInterfaces, whyNoneIsEntered } from "../../kernel/linked-namespaces.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import { AddressWatch } from "../../kernel/route/address-watch.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { udpPeers } from "../../kernel/sock-diag/client-sockets.ts";
import { udpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import { messageOf } from "../../logging/message-of.ts";
import { detectorFor } from "../../model/local-traffic-detector.ts";
import { parseCidr } from "../../net/ip.ts";
import { nftablesRuntime } from "../nftables/runtime.ts";
import { EbpfBackend } from "./backend.ts";
import { detaching, identity, removePins } from "./cleanup.ts";
import { defineEbpfMetrics } from "./metrics.ts";
import { detachStale, pinFolderOf } from "./node-pins.ts";
import { leadsLocalhost, packetPathConfig } from "./packet-path.ts";
import { PodNamespaces } from "./pod-namespaces.ts";
import { powerOfTwo } from "./socket-balancer/free-list.ts";
import { SocketMaps } from "./socket-maps.ts";
import { NOT_KEPT, SocketNews } from "./socket-news.ts";
import { SocketPath } from "./socket-path.ts";
import { SocketPins } from "./socket-pins.ts";
import { SocketPrograms } from "./socket-programs.ts";

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, log } = node;
  const metricsOf = defineEbpfMetrics(node.metrics);
  const under = await nftablesRuntime.open({ ...node, config: packetPathConfig(config) });
  const cgroup = cgroupFor(node);
  if (!cgroup.ok) new SocketNews(log).tellOff(new Error(cgroup.reason));
  const bpf = kernelBpf();
  const folder = pinFolderFor(node);
  // Remove pins of families no longer served, of a time when pinning was enabled, or in another folder.
  const isKept = cgroup.ok && folder !== undefined;
  await removePins(bpf, node, isKept ? { path: folder, families: node.families } : undefined);
  const look = (): boolean => detachStale(bpf, log, detaching, isKept ? folder : undefined);
  let later: Timer | undefined;
  const lookAgain = (): void => {
    later = look() ? node.clock.setTimer(LOOK_AGAIN_MS, lookAgain) : undefined;
  };
  lookAgain();
  const pods = podsOf(node, cgroup.ok ? cgroup.path : "");
  const lock = isKept ? new FolderLock(folder) : undefined;
  const hold = (): void => {
    try {
      lock?.hold((path) => bpf.pins.makeFolder(path));
    } catch (error) {
      // If the folder cannot be created, pinning will report it.
      if (error instanceof FolderInUse) throw error;
    }
  };
  return {
    async backendFor(family) {
      const packetPath = await under.backendFor(family);
      const sockets = new SocketPath({
        family: family.family,
        bpf,
        cgroup,
        pins: isKept ? new SocketPins(bpf.pins, folder, family.family, hold) : undefined,
        nodeName: node.nodeName,
        nodePortAddresses: family.nodePortAddresses,
        programs: () => ({
          hostCookie: ownNetnsCookie(),
          holdsNodePorts: config.ebpf.holdNodePorts,
          leadsLocalhost: leadsLocalhost(config, family.nodePortAddresses),
          counted: COUNTED.find((choice) => choice === config.connections.count) ?? "None",
        }),
        pods,
        rememberedSockets: powerOfTwo(config.ebpf.rememberedSockets),
        validForMs: config.ebpf.validForMs,
        disconnector: udpDisconnector(),
        udpPeers,
        localAddresses,
        addressWatch: node.addressWatch,
        clock: node.clock,
        monotonicNs: process.hrtime.bigint,
        identity,
        metrics: metricsOf(family.family),
        log: family.log,
      });
      return new EbpfBackend(packetPath, sockets);
    },
    async close() {
      later?.cancel();
      lock?.release();
      await under.close();
    },
  };
}

function podsOf({ config, podCIDRs, clock, log }: NodeContext, cgroup: string): PodNamespaces {
  const { detectLocalMode: mode, detectLocal } = config;
  const links = new AddressWatch(true);
  return new PodNamespaces({
    obstacle: whyNoneIsEntered,
    others: otherNamespaces,
    routes: outputInterfaces,
    watch: (onChange, signal) => links.watch(onChange, signal),
    podCgroups: () => podCgroups(cgroup),
    networks: [...detectLocal.clusterCIDRs, ...podCIDRs].flatMap((text) => parseCidr(text.trim()) ?? []),
    // By interface, it is the same in both families.
    detector: detectorFor("IPv4", { mode, podCIDRs, ...detectLocal }).detector,
    isForHostOnly: config.ebpf.hostNamespaceOnly,
    ...{ clock, log },
  });
}

/** After that, another process of this network namespace has reported again, or is dead. */
const LOOK_AGAIN_MS = 30_000;

/** Why programs cannot be used here; for demo and tests. */
function missingForSockets(bpf: Bpf): string | undefined {
  if (cgroup2Mounts(readFileSync("/proc/self/mountinfo", "utf8")).length === 0) {
    return "no cgroup2 file system is mounted: the eBPF mode attaches its programs to a cgroup";
  }
  try {
    const programs = new SocketPrograms(bpf, "IPv4", { hostCookie: ownNetnsCookie() });
    const maps = new SocketMaps(
      { bpf, family: "IPv4", onMoved: () => {}, nowMs: () => 0 },
      { services: 0, endpoints: 0 },
    );
    try {
      programs.load(maps.open);
    } finally {
      programs.close();
      maps.close();
    }
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Undefined if nothing is pinned. */
function pinFolderFor({ config, log }: NodeContext): string | undefined {
  try {
    const found = pinFolderOf(config, ownNetnsCookie);
    if (found?.ok === false) log.info(NOT_KEPT, { reason: found.reason });
    return found?.ok === true ? found.path : undefined;
  } catch (error) {
    log.error(NOT_KEPT, error);
    return undefined;
  }
}

function cgroupFor({ config }: NodeContext): ReturnType<typeof findCgroupRoot> {
  if (config.masqueradeAll) {
    return {
      ok: false,
      reason: "masqueradeAll gives every connection the node's address, which only the rules can do",
    };
  }
  return findCgroupRoot(config.ebpf.cgroupRoot);
}

export const ebpfRuntime: ModeRuntime = {
  unsupported: async () => undefined,
  missingInKernel: async () => missingForSockets(kernelBpf()),
  open,
};
