import type { Backend } from "../../../contract/backend.ts";

/** A packet path that does nothing. */
export const NO_PACKET_PATH: Backend = {
  family: "IPv4",
  mode: "nftables",
  sync: async () => ({ failures: [] }),
};
