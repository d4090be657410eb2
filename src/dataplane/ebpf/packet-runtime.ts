/** The programs at the node's interfaces, put together. Loaded only where they are asked for. */
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { openLinks } from "../../kernel/route/netlink-links.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { Backend } from "../../sync/backend.ts";
import type { FamilyContext, NodeContext } from "../dataplane.ts";
import type { PacketMetrics } from "./metrics.ts";
import { PacketPrograms } from "./packet-programs.ts";
import { PacketStage } from "./packet-stage.ts";
import { whyNotLoaded } from "./trial-load.ts";

export interface PacketStages {
  /** The rules of a family with programs in front of them. */
  before(rules: Backend, family: FamilyContext): Backend;
  close(): Promise<void>;
}

/** Of all families of a node. */
export function packetStages(
  { config, nodeName, addressWatch }: NodeContext,
  metricsOf: (family: IpFamily) => PacketMetrics,
): PacketStages {
  const links = openLinks();
  return {
    before: (rules, { family, nodeIP, detector, nodePortAddresses, log }) =>
      new PacketStage({
        rules,
        bpf: kernelBpf(),
        links,
        addressWatch,
        interfaces: { names: config.ebpf.packetInterfaces, nodeIP, detector },
        nodeName,
        masqueradesAll: config.masqueradeAll,
        nodePortAddresses,
        metrics: metricsOf(family),
        log,
      }),
    close: () => links.close(),
  };
}

/** What keeps programs for packets from being loaded here, in words; undefined when nothing does. Asked by tests. */
export function missingForPackets(bpf: Bpf = kernelBpf()): string | undefined {
  const makePrograms = () => new PacketPrograms(bpf, "IPv4", { podRange: undefined });
  return whyNotLoaded({ bpf, remembered: 64 }, makePrograms);
}
