/** The eBPF mode, put together: the packet path of the nftables mode, and programs at the sockets of the node's processes. */
import { readFileSync } from "node:fs";
import type { KubeProxyConfig } from "../../config/config.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { cgroup2Mounts, findCgroupRoot } from "../../kernel/bpf/cgroup-root.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { udpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import type { Logger } from "../../logging/logger.ts";
import { IP_FAMILIES } from "../../net/ip.ts";
import type { ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import { AT_SOCKET, EbpfBackend, NOT_KEPT, STUCK } from "./backend.ts";
import { packetPathOf } from "./config.ts";
import { defineEbpfMetrics } from "./metrics.ts";
import { endPins, pinFolderOf } from "./node-pins.ts";
import { packetPath, packetPathConfig } from "./packet-path.ts";
import { SocketPins } from "./socket-pins.ts";
import { SocketPrograms } from "./socket-programs.ts";
import { whyNotLoaded } from "./trial-load.ts";

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, log } = node;
  const metricsOf = defineEbpfMetrics(node.metrics);
  const under = await (await packetPath().loadRuntime()).open({ ...node, config: packetPathConfig(config) });
  const cgroup = cgroupFor(node);
  if (!cgroup.ok) {
    log.error("Nothing is decided at the socket; the nftables rules lead all packets", new Error(cgroup.reason), {
      cannot: AT_SOCKET,
    });
  }
  const bpf = kernelBpf();
  const folder = pinFolderFor(node);
  // Of families that are not served any more, or of another time, when something was kept.
  const isKept = cgroup.ok && folder !== undefined;
  await removePins(bpf, node, isKept ? IP_FAMILIES.filter((family) => !node.families.includes(family)) : IP_FAMILIES);
  const packets = packetPathOf(config.ebpf) === "Tcx" ? await import("./packet-runtime.ts") : undefined;
  const ahead = packets?.packetStages(node, metricsOf);
  return {
    async backendFor(family) {
      const backend = await under.backendFor(family);
      return new EbpfBackend({
        packetPath: ahead?.before(backend, family) ?? backend,
        bpf,
        cgroup: cgroup.ok ? cgroup.path : undefined,
        whyNoCgroup: cgroup.ok ? undefined : cgroup.reason,
        pins: isKept ? new SocketPins(bpf.pins, folder, family.family) : undefined,
        nodeName: node.nodeName,
        detectsPods: family.detector.kind !== "none",
        nodePortAddresses: family.nodePortAddresses,
        programs: () => ({
          hostCookie: ownNetnsCookie(),
          isForHostOnly: config.ebpf.hostNamespaceOnly,
          holdsNodePorts: config.ebpf.holdNodePorts,
        }),
        disconnector: udpDisconnector(),
        localAddresses,
        addressWatch: node.addressWatch,
        metrics: metricsOf(family.family),
        log: family.log,
      });
    },
    async close() {
      await ahead?.close();
      await under.close();
    },
  };
}

/** What keeps programs from being used here, in words; asked by demo and tests. */
function missingForSockets(bpf: Bpf): string | undefined {
  if (cgroup2Mounts(readFileSync("/proc/self/mountinfo", "utf8")).length === 0) {
    return "no cgroup2 file system is mounted: the eBPF mode attaches its programs to a cgroup";
  }
  const makePrograms = () =>
    new SocketPrograms(bpf, "IPv4", { hostCookie: ownNetnsCookie(), isForHostOnly: false, connectedUdp: "all" });
  return whyNotLoaded({ bpf }, makePrograms);
}

/** Undefined: nothing is kept. */
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

/** @returns whether nothing of them is left. */
async function removePins(
  bpf: Bpf,
  { config, log }: { readonly config?: KubeProxyConfig | undefined; readonly log: Logger },
  families = IP_FAMILIES,
): Promise<boolean> {
  try {
    await endPins(bpf, config, ownNetnsCookie, families);
    return true;
  } catch (error) {
    log.error(STUCK, error);
    return false;
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
  // Of the programs; the rules are those of the nftables mode, which cleans them up.
  cleanUp: async (log, config) => removePins(kernelBpf(), { log, config }),
  // Those of the packet path are the nftables mode's.
  defineMetrics: (families) => void defineEbpfMetrics(families),
};
