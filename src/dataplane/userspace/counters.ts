/** What is counted of the userspace mode: connections to its sockets are tracked; where it carries them, only the daemon knows. */
import type { ModeCounters } from "../traffic.ts";

export const userspaceCounters: ModeCounters = {
  isEndpointTracked: false,
  fill: async () => [
    "The proxy carries the bytes itself: conntrack tells the connections of an address, and a running daemon those of its endpoints.",
  ],
};
