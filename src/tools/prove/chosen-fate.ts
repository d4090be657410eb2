/** Which endpoint a Service means. Hashes are those of modes that keep sparse tables (docs/which-endpoint.md). */

import type { Deviation } from "../../contract/deviations.ts";
import type { ServiceRecord } from "../../model/objects.ts";
import { probeSeed, sparseTables } from "../../model/sparse-tables.ts";
import type { Hashing } from "../../net/balancing.ts";
import { hashedBy } from "../../trace/netfilter/walk-state.ts";
import { byHash, type Fate, joined } from "./fate.ts";
import { hashedInOrder, type SpecifiedNode, type StatedEndpoint, sharesOf } from "./stated-services.ts";

/** The way to each endpoint, with its share of the clients and, where a hash chooses, a digest of which they are. */
export function chosenFate(
  endpoints: readonly StatedEndpoint[],
  service: ServiceRecord,
  node: SpecifiedNode,
  deviations: ReadonlySet<Deviation>,
  wayTo: (endpoint: StatedEndpoint) => string,
): Fate {
  const { balancing: hashing } = service;
  if (hashing !== undefined && deviations.has("hashed-by-tables")) return byTables(endpoints, hashing, node, wayTo);
  const shares = sharesOf(endpoints);
  const inOrder = deviations.has("hashed-in-order") ? hashedInOrder(endpoints, service, node) : undefined;
  return new Map(endpoints.map((one, index) => [byHash(wayTo(one), inOrder?.get(one.end)), shares[index] ?? 0]));
}

function byTables(
  endpoints: readonly StatedEndpoint[],
  hashing: Hashing,
  { family, hashSeed: seed = 0 }: SpecifiedNode,
  wayTo: (endpoint: StatedEndpoint) => string,
): Fate {
  const { tables = [], last } = sparseTables(endpoints.map(placed), seed) ?? {};
  const fate = new Map<string, number>();
  const add = (owner: ReturnType<typeof placed> | undefined, clients: string, odds: number): void => {
    // A full table decides for all clients.
    if (owner !== undefined && odds > 0) fate.set(byHash(wayTo(owner.endpoint), clients), odds);
  };
  const hashed = `${family === "IPv4" ? "ip" : "ip6"} saddr${hashing === "FlowHash" ? " . th sport" : ""}`;
  let others = "";
  let left = 1;
  for (const { size, probes, cells } of tables) {
    const slots = [...cells.keys()].sort((a, b) => a - b);
    for (let probe = 0; probe < probes; probe += 1) {
      const slot = `jhash ${hashed} mod ${size} seed 0x${probeSeed(seed, size, probe).toString(16)} is`;
      for (const at of slots) add(cells.get(at), hashedBy(others, `${slot} ${at}`), left / size);
      others = hashedBy(others, `${slot} none of ${slots.join(",")}`);
      left *= 1 - slots.length / size;
    }
  }
  add(last, others, left);
  return joined(fate);
}

function placed(endpoint: StatedEndpoint) {
  const { address: ip, port, weight } = endpoint;
  return { ip, port, ...(weight !== undefined && { weight }), endpoint };
}
