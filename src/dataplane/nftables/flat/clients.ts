/**
 * What the kernel remembers of clients with session affinity: at which frontend they asked, and which endpoint they got. The
 * rules trust it, so what names an endpoint that is gone must go: docs/reference/flat-nftables.md §3.
 */
import type { NftElement } from "../../../kernel/nftables/ruleset.ts";
import { elementKey } from "../../../kernel/nftables/ruleset.ts";
import type { SharedElement, StaticPlan } from "../table-plan.ts";
import { CLIENTS, endpointMapOf, STICKY_SETS, timedName, timeoutOf } from "./names.ts";

/** Finds the elements of the service port that has one at a key of a set. */
type FindElements = (set: string, key: string) => readonly SharedElement[] | undefined;

/** The maps of clients that a table has. Pure. */
export function clientMaps({ sets }: StaticPlan): string[] {
  return sets.flatMap(({ name }) => (timeoutOf(name, CLIENTS) === undefined ? [] : [name]));
}

/** The maps that may remember what is not so any more, when a service port changes. Pure. */
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
  return hasLost ? Array.from(timeouts, (seconds) => timedName(CLIENTS, seconds)) : [];
}

function stickyTimeoutOf(set: string): number | undefined {
  return timeoutOf(set, STICKY_SETS.frontend) ?? timeoutOf(set, STICKY_SETS.nodePort);
}

/** That a frontend has an endpoint, in any slot; or that it has affinity. */
function relation({ set, element }: SharedElement): string {
  const { key, target } = element;
  if (target === undefined) return `${set} ${elementKey(key)}`;
  return `${elementKey(key.slice(0, -1))} ${target.ip} ${target.port}`;
}

/** Whether an entry of a map of clients names an endpoint that the frontend still has. Pure. */
export function isClientCurrent(map: string, { key, target }: NftElement, findElements: FindElements): boolean {
  const seconds = timeoutOf(map, CLIENTS);
  const [, ...frontend] = key;
  if (seconds === undefined || target === undefined) return false;
  const nodePort = frontend.slice(1);
  const asked = elementKey(frontend);
  const askedPort = elementKey(nodePort);
  const byFrontend = findElements(timedName(STICKY_SETS.frontend, seconds), asked);
  if (byFrontend !== undefined) return leadsTo(byFrontend, asked, target);
  const byNodePort = findElements(timedName(STICKY_SETS.nodePort, seconds), askedPort);
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
