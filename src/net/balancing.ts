/** How the endpoint of a new connection is chosen. */
import { type IpAddress, ipBytes } from "./ip.ts";

/** `Random`: each endpoint with its share. The hashes: a function of the client's address, or of its address and port. */
export type Balancing = "Random" | "SourceHash" | "FlowHash";
/** What a Service must ask for. */
export type Hashing = Exclude<Balancing, "Random">;

/** The seed of all hashes unless the configuration has another: the same on every node, so that nodes choose alike. */
export const DEFAULT_HASH_SEED = 0x6b707473;

/** What a hash reads of a client: its address, and its port with two zero bytes behind, as in keys of nftables. */
export function clientKey(
  hashing: Hashing,
  client: { readonly address: IpAddress; readonly port: number },
): Uint8Array {
  const address = ipBytes(client.address);
  return hashing === "SourceHash" ? address : Uint8Array.of(...address, client.port >>> 8, client.port & 0xff, 0, 0);
}
