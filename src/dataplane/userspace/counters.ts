/** Conntrack sees connections to the proxy's sockets; only the daemon knows where it carries them. */
import type { ModeCounters } from "../traffic.ts";

export const userspaceCounters: ModeCounters = {
  isEndpointTracked: false,
  fill: async () => [
    "The proxy carries the bytes itself: conntrack tells the connections of an address, and a running daemon those of its endpoints.",
  ],
};
