/** The counters of elements in the flat layout, if enabled (docs/connections.md); upstream's rules count nothing. */

import { addTo, type Count, type CountedPort, type ModeCounters } from "../../contract/traffic.ts";
import { isNotFound, undefinedIf } from "../../kernel/netlink/errors.ts";
import { TableReader } from "../../kernel/nftables/netlink-content.ts";
import { LAYOUTS as FAMILY_LAYOUTS } from "../../kernel/nftables/netlink-values.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { openNftables } from "../../kernel/nftables/wire/nftables-client.ts";
import type { IpFamily } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import { ALLOWED_SOURCES, endpointMapOf, FLAT_SETS, isOfNodePorts, numberIn, STICKY_SETS } from "./flat/names.ts";
import { flatSet } from "./flat/sets.ts";
import { FAMILIES, TABLE } from "./names.ts";

export const nftablesCounters: ModeCounters = {
  isEndpointTracked: true,
  async fill(ports) {
    let isCounting = false;
    for (const [family, own] of Map.groupBy(ports, (port) => port.family)) {
      const sets = await readSets(family);
      isCounting ||= sets.has(FLAT_SETS.frontends);
      fillFromSets(sets, own);
    }
    return isCounting
      ? ["Elements count the connections of a Service since its address, or an endpoint's slot, was last written."]
      : [
          "Only open connections are shown: these rules have no counters (nftables.layout: Flat with connections.count has).",
        ];
  },
};

type CountedSets = ReadonlyMap<string, readonly NftElement[]>;

/** Reads the sets with counters, and those that hold the frontends with session affinity. @throws NetlinkError */
async function readSets(family: IpFamily): Promise<CountedSets> {
  const layout = FAMILY_LAYOUTS[FAMILIES[family]];
  await using client = openNftables();
  const table = new TableReader(client, TABLE, layout);
  const sets = new Map<string, readonly NftElement[]>();
  try {
    const heads = await client.setHeads(layout.nfproto, TABLE);
    if (!heads.some(({ expression }) => expression?.kind === "counter")) return sets;
    for (const { name = "", expression } of heads) {
      const set = flatSet(name);
      if (set === undefined || (expression?.kind !== "counter" && !isSticky(name))) continue;
      // Numbered sets come and go with Services.
      const elements = await table.elements({ name, key: set.key }).catch(undefinedIf("ENOENT"));
      if (elements !== undefined) sets.set(name, elements);
    }
    return sets;
  } catch (error) {
    // The table does not exist yet.
    if (isNotFound(error)) return new Map();
    throw error;
  }
}

function isSticky(name: string): boolean {
  return Object.values(STICKY_SETS).some((base) => numberIn(name, base) !== undefined);
}

/** Which count of a frontend a set contributes to, and with which sign; endpoints have maps of their own. */
function meaningOf(set: string): readonly [keyof Count, 1 | -1] | undefined {
  const { frontends, nodePorts, rejectedFrontends, rejectedNodePorts } = FLAT_SETS;
  if (set === frontends || set === nodePorts) return ["counted", 1];
  if (set === rejectedFrontends || set === rejectedNodePorts) return ["refused", 1];
  if (set === FLAT_SETS.droppedFrontends || set === FLAT_SETS.droppedNodePorts) return ["dropped", 1];
  // Clients at a restricted frontend, minus the admitted ones.
  if (set === FLAT_SETS.restrictedFrontends) return ["dropped", 1];
  return numberIn(set, ALLOWED_SOURCES) === undefined ? undefined : ["dropped", -1];
}

/** How many values of a key come before an allowed source or a slot. */
const FRONTEND_VALUES = 3;

/** Changes only the counts in `ports`. */
export function fillFromSets(sets: CountedSets, ports: readonly CountedPort[]): void {
  if (sets.size === 0) return;
  const places = new Map<string, { readonly count: Count; readonly endpoints: ReadonlyMap<string, Count> }>();
  const countsEndpoints = [...sets.keys()].some((name) => endpointMapOf(name) !== undefined);
  for (const { name, frontends, endpoints } of ports) {
    const protocol = protocolName(name.protocol);
    const byText = new Map(endpoints.map(({ ip, port, count }) => [`${ip} ${port}`, count]));
    for (const { address, port, count } of frontends) {
      places.set(elementKey(address === undefined ? [protocol, port] : [address, protocol, port]), {
        count,
        endpoints: byText,
      });
      Object.assign(count, { counted: 0, refused: 0, dropped: 0 });
    }
    if (countsEndpoints) for (const { count } of endpoints) count.counted = 0;
  }
  for (const [name, elements] of sets) {
    const meaning = meaningOf(name);
    const map = endpointMapOf(name)?.map;
    const isNodePort = map !== undefined && isOfNodePorts(map);
    for (const { key, target, packets = 0 } of elements) {
      const place = places.get(elementKey(key.slice(0, isNodePort ? FRONTEND_VALUES - 1 : FRONTEND_VALUES)));
      if (place === undefined) continue;
      if (meaning !== undefined) addTo(place.count, meaning[0], meaning[1] * packets);
      const endpoint = target && place.endpoints.get(`${target.ip} ${target.port}`);
      if (endpoint !== undefined) addTo(endpoint, "counted", packets);
    }
  }
  // Sets are read one after the other: a client that was admitted in between is in only one of them.
  for (const { count } of places.values()) count.dropped = Math.max(0, count.dropped ?? 0);
  // Remembered clients bypass the slots and their counters.
  for (const [name, elements] of sets) {
    if (!isSticky(name)) continue;
    for (const { key } of elements) {
      for (const count of places.get(elementKey(key))?.endpoints.values() ?? []) count.counted = null;
    }
  }
}
