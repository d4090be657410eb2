import type { Backend } from "../../../sync/backend.ts";

/** A packet path that has nothing to do. */
export const NO_PACKET_PATH: Backend = {
  family: "IPv4",
  mode: "nftables",
  sync: async () => ({ failures: [], noLocalEndpoints: { internal: 0, external: 0 } }),
};
