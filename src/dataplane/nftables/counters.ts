/** What the nftables mode's rules count: nothing, as upstream's do not either (reference nftables.md §3). */
import type { ModeCounters } from "../traffic.ts";

export const nftablesCounters: ModeCounters = {
  isEndpointTracked: true,
  fill: async () => ["The rules of nftables mode have no counters: only open connections are known."],
};
