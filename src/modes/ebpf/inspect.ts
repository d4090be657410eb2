/** Describes the eBPF mode for people who inspect the kernel: they find the rules of the packet path. */
import type { ModeInspection } from "../../contract/inspection.ts";
import { masqueradingOf, type SourceFacts, TRANSLATING } from "../../contract/mode-words.ts";
import { inspectNftables as under } from "../nftables/inspect.ts";
import { packetPathConfig } from "./packet-path.ts";

export const inspectEbpf: ModeInspection = {
  ...under,
  words: {
    ...under.words,
    sources,
    loopback(facts) {
      const { led, notLed } = under.words.loopback(facts);
      return {
        led:
          facts.port.protocol === "TCP" && facts.port.balancing === undefined
            ? `decided at the socket; for other TCP clients, ${led}`
            : led,
        notLed,
      };
    },
  },
  choice: (config, isWeighted) => under.choice(packetPathConfig(config), isWeighted),
  partsOf: (node, config, ...port) => under.partsOf(node, packetPathConfig(config), ...port),
  loadCounters: async (config) =>
    (await import("./counters.ts")).ebpfCounters(await under.loadCounters(), config ?? { ebpf: { pinFolder: "" } }),
  loadSockets: async () => (await import("./live-sockets.ts")).ebpfSockets,
};

function sources(facts: SourceFacts): readonly string[] {
  const { masqueradeAll, ebpf } = facts.config;
  if (masqueradeAll || ebpf.hostNamespaceOnly || facts.port.protocol === "SCTP" || facts.port.balancing !== undefined)
    return TRANSLATING.sources(facts);
  const hairpin =
    "An endpoint that reaches itself through its Service sees its own address. Where rules decide (UDP at node ports, externalTrafficPolicy Local), it sees the node's.";
  return [...masqueradingOf(facts), ...(facts.hasLocal ? [hairpin] : [])];
}
