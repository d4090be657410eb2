/**
 * The session affinity entries in the kernel: a client, its frontend and the endpoint that it got. The rules trust
 * them, so entries that name an endpoint that is gone must be deleted: docs/reference/flat-nftables.md §3.
 */
import { type Nftables, NftError, type NftOperation } from "../../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../../kernel/nftables/ruleset.ts";
import { AFFINITY_SET } from "../names.ts";
import type { InstalledPort } from "../port-objects.ts";
import type { SharedElement, StaticPlan } from "../table-plan.ts";
import { CLIENTS, endpointMapOf, numbered, numberIn, STICKY_SETS } from "./names.ts";
import { flatSet } from "./sets.ts";

/** Finds the elements of the service port that has one at a key of a set. */
type FindElements = (set: string, key: string) => readonly SharedElement[] | undefined;

/** The names of a table's maps of clients. */
export function clientMaps({ sets }: StaticPlan): string[] {
  return sets.flatMap(({ name }) => (numberIn(name, CLIENTS) === undefined ? [] : [name]));
}

/** The maps of clients that may have stale entries after this change of a service port. */
export function clientMapsInDoubt(before: readonly SharedElement[], after: readonly SharedElement[]): string[] {
  const timeouts = new Set<number>();
  for (const { set } of before) {
    const seconds = stickyTimeoutOf(set);
    if (seconds !== undefined) timeouts.add(seconds);
  }
  if (timeouts.size === 0) return [];
  const left = new Set(after.map(relation));
  const hasLost = before.some((shared) => {
    const isRelevant = shared.element.target !== undefined || stickyTimeoutOf(shared.set) !== undefined;
    return isRelevant && !left.has(relation(shared));
  });
  return hasLost ? Array.from(timeouts, (seconds) => numbered(CLIENTS, seconds)) : [];
}

function stickyTimeoutOf(set: string): number | undefined {
  return numberIn(set, STICKY_SETS.frontend) ?? numberIn(set, STICKY_SETS.nodePort);
}

/** Identifies the fact that a frontend has an endpoint, in any slot, or that it has session affinity. */
function relation({ set, element }: SharedElement): string {
  const { key, target } = element;
  if (target === undefined) return `${set} ${elementKey(key)}`;
  return `${elementKey(key.slice(0, -1))} ${target.ip} ${target.port}`;
}

/** Whether an entry of a map of clients names an endpoint that its frontend still has. */
function isClientCurrent(map: string, { key, target }: NftElement, findElements: FindElements): boolean {
  const seconds = numberIn(map, CLIENTS);
  const [, ...frontend] = key;
  if (seconds === undefined || target === undefined) return false;
  const nodePort = frontend.slice(1);
  const asked = elementKey(frontend);
  const askedPort = elementKey(nodePort);
  const byFrontend = findElements(numbered(STICKY_SETS.frontend, seconds), asked);
  if (byFrontend !== undefined) return leadsTo(byFrontend, asked, target);
  const byNodePort = findElements(numbered(STICKY_SETS.nodePort, seconds), askedPort);
  return byNodePort !== undefined && leadsTo(byNodePort, askedPort, target);
}

function leadsTo(
  elements: readonly SharedElement[],
  frontend: string,
  target: NonNullable<NftElement["target"]>,
): boolean {
  return elements.some(
    ({ set, element }) =>
      element.target?.ip === target.ip &&
      element.target.port === target.port &&
      endpointMapOf(set) !== undefined &&
      elementKey(element.key.slice(0, -1)) === frontend,
  );
}

/** The most entries that one transaction deletes. */
const AT_ONCE = 1000;
/** The most reads of a map: a packet still between hooks when its entry is deleted writes it again. */
const MOST_LOOKS = 4;

/**
 * Deletes stale entries from maps of clients until none is left. Entries may expire in the meantime.
 *
 * @param names of the maps; those that do not exist are skipped.
 * @param state what service ports have in the kernel now.
 * @returns how many entries were deleted. Rejects with an {@link NftError} if the kernel rejects a deletion.
 */
export async function forgetClients(
  nft: Nftables,
  names: Iterable<string>,
  state: { portWith(set: string, key: string): InstalledPort | undefined },
): Promise<number> {
  let forgotten = 0;
  // One service port has many clients, and its elements may have to be planned.
  const planned = new Map<InstalledPort, readonly SharedElement[]>();
  const findElements = (set: string, key: string): readonly SharedElement[] | undefined => {
    const port = state.portWith(set, key);
    if (port === undefined) return undefined;
    const elements = planned.get(port) ?? port.elements;
    planned.set(port, elements);
    return elements;
  };
  for (const name of names) {
    const set = flatSet(name);
    for (let looks = 0; set !== undefined && looks < MOST_LOOKS; looks += 1) {
      const entries = (await nft.readElements(set)) ?? [];
      const stale = entries.filter((entry) => !isClientCurrent(name, entry, findElements));
      if (stale.length === 0) break;
      for (let start = 0; start < stale.length; start += AT_ONCE) {
        const deletions = stale
          .slice(start, start + AT_ONCE)
          .map(({ key }): NftOperation => ({ kind: "delete-elements", set, keys: [key] }));
        forgotten += await deleteThoseLeft(nft, deletions);
      }
    }
  }
  return forgotten;
}

/**
 * Deletes elements that catch all clients from affinity sets of the compatible layout: packets add none, and with one all clients
 * of the Service would get its endpoint.
 *
 * @returns how many there were. Rejects with an {@link NftError} if the kernel rejects a deletion.
 */
export async function forgetCatchAlls(nft: Nftables, names: Iterable<string>): Promise<number> {
  const sets = Array.from(names, (name) => ({ ...AFFINITY_SET, name }));
  const found = sets.length === 0 ? [] : await nft.withCatchAll(sets);
  return await deleteThoseLeft(
    nft,
    found.map((set): NftOperation => ({ kind: "delete-elements", set, keys: [[]] })),
  );
}

async function deleteThoseLeft(nft: Nftables, deletions: NftOperation[]): Promise<number> {
  while (deletions.length > 0) {
    try {
      await nft.transact(deletions);
      return deletions.length;
    } catch (error) {
      if (!(error instanceof NftError) || error.code !== "not_found" || error.operation === undefined) throw error;
      deletions.splice(error.operation, 1);
    }
  }
  return 0;
}
