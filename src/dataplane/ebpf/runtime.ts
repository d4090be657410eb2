/** The eBPF mode, put together: the packet path of the nftables mode, and programs at the sockets of the node's processes. */
import { readFileSync } from "node:fs";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { cgroup2Mounts, findCgroupRoot } from "../../kernel/bpf/cgroup-root.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { udpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import type { ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import { EbpfBackend } from "./backend.ts";
import { defineEbpfMetrics } from "./metrics.ts";
import { packetPath, packetPathConfig } from "./packet-path.ts";
import { SocketMaps } from "./socket-maps.ts";
import { SocketPrograms } from "./socket-programs.ts";

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, log } = node;
  const metricsOf = defineEbpfMetrics(node.metrics);
  const under = await (await packetPath().loadRuntime()).open({ ...node, config: packetPathConfig(config) });
  const cgroup = cgroupFor(node);
  if (!cgroup.ok) {
    log.error("Nothing is decided at the socket; the nftables rules lead all packets", new Error(cgroup.reason));
  }
  return {
    async backendFor(family) {
      const backend = await under.backendFor(family);
      return new EbpfBackend({
        packetPath: backend,
        bpf: kernelBpf(),
        cgroup: cgroup.ok ? cgroup.path : undefined,
        nodeName: node.nodeName,
        detectsPods: family.detector.kind !== "none",
        nodePortAddresses: family.nodePortAddresses,
        programs: () => ({
          hostCookie: ownNetnsCookie(),
          isForHostOnly: config.ebpf.hostNamespaceOnly,
        }),
        disconnector: udpDisconnector(),
        localAddresses,
        addressWatch: node.addressWatch,
        metrics: metricsOf(family.family),
        log: family.log,
      });
    },
    close: () => under.close(),
  };
}

/** What keeps programs from being used here, in words; asked by demo and tests. */
function missingForSockets(bpf: Bpf): string | undefined {
  if (cgroup2Mounts(readFileSync("/proc/self/mountinfo", "utf8")).length === 0) {
    return "no cgroup2 file system is mounted: the eBPF mode attaches its programs to a cgroup";
  }
  try {
    const maps = new SocketMaps(
      { bpf, family: "IPv4", onMoved: () => {}, nowMs: () => 0 },
      { services: 0, endpoints: 0 },
    );
    const programs = new SocketPrograms(bpf, "IPv4", {
      hostCookie: ownNetnsCookie(),
      isForHostOnly: false,
      connectedUdp: "all",
    });
    try {
      programs.load(maps.open);
    } finally {
      programs.close();
      maps.close();
    }
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function cgroupFor({ config }: NodeContext): ReturnType<typeof findCgroupRoot> {
  if (config.masqueradeAll) {
    return { ok: false, reason: "masqueradeAll asks for the node's address on every connection, which needs packets" };
  }
  return findCgroupRoot(config.ebpf.cgroupRoot);
}

export const ebpfRuntime: ModeRuntime = {
  unsupported: async () => undefined,
  missingInKernel: async () => missingForSockets(kernelBpf()),
  open,
  // The programs are gone with their process; the rules are those of the nftables mode, which cleans them up.
  cleanUp: async () => true,
  // Those of the packet path are the nftables mode's.
  defineMetrics: (families) => void defineEbpfMetrics(families),
};
