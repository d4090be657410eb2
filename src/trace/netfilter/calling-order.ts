/**
 * The order in which the kernel calls the base chains of a hook. Of chains with one priority, the one registered last is called
 * first. Handles and listings tell that order within a table. Across tables the kernel's list of hooks does, or a daemon that saw them
 * come; without both, a walk must not depend on it.
 */
import type { Packet } from "../packet.ts";
import type { BaseChain, Program, Stage } from "./program.ts";
import type { Outcome } from "./tree.ts";

/** NF_IP_PRI_NAT_DST, NF_IP_PRI_NAT_SRC: one function of the kernel calls all nat chains of a hook (nf_nat_core.c). */
const NAT_DESTINATION = -100;
const NAT_SOURCE = 100;

/** The priority at which a chain acts. A nat chain's own priority only orders it among the nat chains of its hook. */
export function actingPriority({ type, stage, priority }: BaseChain): number {
  if (type !== "nat") return priority;
  return stage === "input" || stage === "postrouting" ? NAT_SOURCE : NAT_DESTINATION;
}

/** Whether array order is calling order for two chains with one acting priority. */
function isOrderKnown(one: BaseChain, other: BaseChain): boolean {
  if (one.place !== other.place) return one.place !== undefined && other.place !== undefined;
  if (one.type !== other.type) return false;
  if (one.table === other.table || (one.type === "nat" && one.priority !== other.priority)) return true;
  const [a, b] = [one.registered, other.registered];
  return a !== undefined && b !== undefined && (a[0] > b[1] || b[0] > a[1]);
}

/** Sorts the chains of a hook; where nothing tells the order, tables keep theirs. */
function inCallingOrder(chains: readonly BaseChain[]): readonly BaseChain[] {
  const tables = [...new Set(chains.map(({ table }) => table))];
  const newestFirst = [...chains.entries()].sort(
    ([at, a], [otherAt, b]) =>
      (b.registered?.[0] ?? 0) - (a.registered?.[0] ?? 0) ||
      tables.indexOf(a.table) - tables.indexOf(b.table) ||
      (a.handle === undefined || b.handle === undefined ? otherAt - at : b.handle - a.handle),
  );
  return newestFirst
    .map(([, chain]) => chain)
    .sort(
      (a, b) =>
        actingPriority(a) - actingPriority(b) ||
        (a.place ?? 0) - (b.place ?? 0) ||
        a.type.localeCompare(b.type) ||
        a.priority - b.priority,
    );
}

/** All base chains in the order in which the kernel calls them. */
export function programOf(chains: readonly BaseChain[]): Program {
  const at = (stage: Stage) => inCallingOrder(chains.filter((chain) => chain.stage === stage));
  return {
    socket: at("socket"),
    prerouting: at("prerouting"),
    input: at("input"),
    forward: at("forward"),
    output: at("output"),
    postrouting: at("postrouting"),
  };
}

/** Everything that a chain alone may do with a packet; a fate of `sent` means that the packet passes it. */
export type EffectOf = (chain: BaseChain, packet: Packet) => readonly Outcome[];

/**
 * @param rest the remaining chains of the hook, as {@link programOf} has them; not empty.
 * @returns several if it matters which of them is called first, and nothing tells it; and how many of the rest, from the first one
 * on, need not be asked about again.
 */
export function nextChains(rest: readonly BaseChain[], packet: Packet, effectOf: EffectOf) {
  const [first] = rest;
  const priority = first && actingPriority(first);
  const end = rest.findIndex((chain) => actingPriority(chain) !== priority);
  const group = end < 0 ? rest : rest.slice(0, end);
  const rivals = group.filter(({ chain, policy }) => chain.length > 0 || policy === "drop");
  const isOpen = rivals.some((one, at) => rivals.slice(at + 1).some((other) => !isOrderKnown(one, other)));
  if (!isOpen || new CommonEffect(effectOf).of(rivals, packet) !== undefined) {
    return { chains: rest.slice(0, 1), settled: group.length };
  }
  return { chains: firstsOf(rivals), settled: 1 };
}

function firstsOf(rivals: readonly BaseChain[]): readonly BaseChain[] {
  return rivals.filter((chain, at) => rivals.slice(0, at).every((earlier) => !isOrderKnown(earlier, chain)));
}

/** The odds of each result of several chains. */
type Effect = ReadonlyMap<string, number>;

class CommonEffect {
  readonly #effectOf: EffectOf;
  readonly #known = new Map<string, Effect | undefined>();

  constructor(effectOf: EffectOf) {
    this.#effectOf = effectOf;
  }

  /** What the chains do together in every order; undefined if it depends on the order. */
  of(rivals: readonly BaseChain[], packet: Packet): Effect | undefined {
    const state = JSON.stringify(packet);
    if (rivals.length === 0) return new Map([[state, 1]]);
    const key = `${rivals.map(chainName).join()} ${state}`;
    if (this.#known.has(key)) return this.#known.get(key);
    const effects = firstsOf(rivals).map((first) => this.#beginningWith(first, rivals, packet));
    const [one, ...others] = effects;
    const common = others.every((other) => isSameEffect(one, other)) ? one : undefined;
    this.#known.set(key, common);
    return common;
  }

  #beginningWith(first: BaseChain, rivals: readonly BaseChain[], packet: Packet): Effect | undefined {
    const rest = rivals.filter((other) => other !== first);
    const effect = new Map<string, number>();
    for (const outcome of this.#effectOf(first, packet)) {
      const { odds, assumptions, fate, entries } = outcome;
      const { by: _, ...end } = { by: undefined, ...fate };
      const then: Effect | undefined =
        fate.kind === "sent" ? this.of(rest, outcome.packet) : new Map([[JSON.stringify(end), 1]]);
      if (then === undefined) return undefined;
      for (const [result, share] of then) {
        const said = [...assumptions, ...entries.map((entry) => JSON.stringify(entry)), ...result.split("\n")];
        const all = said.sort().join("\n");
        effect.set(all, (effect.get(all) ?? 0) + odds * share);
      }
    }
    return effect;
  }
}

const PRECISION = 1e-9;

function isSameEffect(one: Effect | undefined, other: Effect | undefined): boolean {
  if (one?.size !== other?.size || one === undefined) return false;
  return [...one].every(([result, odds]) => Math.abs(odds - (other?.get(result) ?? -1)) < PRECISION);
}

/** As rules and listings name it. */
export function chainName({ table, chain }: BaseChain): string {
  return `${table} ${chain.name}`;
}

/** That one of the chains is called before the others. */
export function firstText(first: BaseChain, chains: readonly BaseChain[]): string {
  const others = chains.filter((chain) => chain !== first).map(chainName);
  return `${chainName(first)} is called before ${others.join(", ")}`;
}

/** Whether the packet passes the chain as if it were not there. */
export function isIdle(chain: BaseChain, packet: Packet, effectOf: EffectOf): boolean {
  return effectOf(chain, packet).every(
    ({ fate, entries, packet: after }) =>
      fate.kind === "sent" && entries.length === 0 && JSON.stringify(after) === JSON.stringify(packet),
  );
}
