/** What is counted of the userspace mode: connections to its sockets are tracked, but not where the proxy carries them. */
import type { ModeCounters } from "../traffic.ts";

export const userspaceCounters: ModeCounters = {
  isEndpointTracked: false,
  fill: async () => [
    "The proxy carries the bytes itself: conntrack tells the connections of an address, and not of an endpoint.",
  ],
};
