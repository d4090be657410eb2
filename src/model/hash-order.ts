/**
 * Which endpoint a hash chooses where rules ask one endpoint after the other: each takes the clients whose hash, with a seed of its own,
 * is below a bound. The order and the seeds depend on addresses alone: when an endpoint comes or goes, most clients stay.
 */
import { mixed, pair } from "../net/mix.ts";
import { cellsOf } from "./cells.ts";
import { identityOf, type Placed } from "./sparse-tables.ts";

/** How many hashes there are. */
export const ALL_HASHES = 2 ** 32;

/** An endpoint's turn to be asked. */
export interface HashTurn<T> {
  readonly endpoint: T;
  readonly seed: number;
  /** It takes clients whose hash is below this; the last one takes {@link ALL_HASHES}. */
  readonly below: number;
  /** Endpoints with a higher rank are asked before. */
  readonly rank: number;
}

/** The endpoints in the order in which they are asked. @param endpoints none of which is drained. @param seed the same on all nodes */
export function hashTurns<T extends Placed>(endpoints: readonly T[], seed: number): readonly HashTurn<T>[] {
  const cells = cellsOf(endpoints);
  const ofAddress = Map.groupBy(endpoints, ({ ip }) => ip);
  const known = endpoints.map((endpoint, index) => {
    // Of several with one address, the lowest port has the address's own place.
    const before = ofAddress.get(endpoint.ip)?.filter(({ port }) => port < endpoint.port).length ?? 0;
    const identity = identityOf(endpoint, seed);
    const own = before === 0 ? identity : pair(identity, before);
    return { endpoint, cells: cells[index] ?? 1, seed: pair(own, 0x49), rank: mixed(own ^ 1) };
  });
  known.sort(byRank);
  let sum = 0;
  const turns = known.map(({ cells: own, ...turn }): HashTurn<T> => {
    sum += own;
    return { ...turn, below: Math.round((own / sum) * ALL_HASHES) };
  });
  return turns.reverse();
}

type Ranked = Pick<HashTurn<Placed>, "rank" | "endpoint">;

/** Ascending: endpoints are asked from the last one on. */
export function byRank(one: Ranked, other: Ranked): number {
  return one.rank - other.rank || (one.endpoint.ip < other.endpoint.ip ? -1 : 1);
}
