/** The eBPF mode, seen by people who look at the kernel: the rules of the packet path are what they find. */
import type { ModeInspection } from "../inspection.ts";
import { packetPath, packetPathConfig } from "./packet-path.ts";

export async function inspectEbpf(): Promise<ModeInspection> {
  const under = await packetPath().loadInspection();
  return {
    ...under,
    choice: (config) => under.choice(packetPathConfig(config)),
    partsOf: (node, config, key) => under.partsOf(node, packetPathConfig(config), key),
    loadCounters: async () => ({
      isEndpointTracked: true,
      fill: async () => [
        "Connections that were decided at the socket go straight to an endpoint, and are in no count here: only what took the rules is.",
      ],
    }),
    loadSockets: async () => (await import("./live-sockets.ts")).ebpfSockets,
  };
}
