/**
 * Which route a packet takes. Rules are asked in their order; a table that has no route for it leaves it to the next rule. As the kernel
 * has it (net/core/fib_rules.c, fib_rules_lookup).
 */
import { cidrContains, type IpAddress, type IpFamily, parseCidr, splitCidr } from "../../net/ip.ts";
import { prefixPatterns } from "../../trace/facts.ts";
import type { Packet } from "../../trace/packet.ts";
import { fieldsQuestion, type PacketField, type Question, whichOf, within } from "../../trace/question.ts";
import type { Ask } from "./asking.ts";
import { UnprovableError } from "./classes.ts";

export interface SetRoute {
  readonly cidr: string;
  /** `unicast`, `blackhole`, … */
  readonly type: string;
  /** Undefined if it has several, or none. */
  readonly device: string | undefined;
}

export interface SetRule {
  readonly priority: number;
  readonly isNot: boolean;
  /** Prefixes; undefined: any. */
  readonly source: string | undefined;
  readonly destination: string | undefined;
  /** By which packets come in; `lo` for the node's own. */
  readonly device: string | undefined;
  readonly mark: { readonly value: number; readonly mask: number } | undefined;
  /** Other conditions and actions, by name: what they ask is not known. */
  readonly unread: readonly string[];
  /** Where to look; undefined if the rule itself ends the packet's way. */
  readonly table: string | undefined;
  /** Routes of prefixes no longer than this do not count. @default -1: all count */
  readonly suppressed?: number;
  /** `blackhole`, … */
  readonly type: string;
}

/** Routes by table, the longest prefix first. */
export type SetTables = ReadonlyMap<string, readonly SetRoute[]>;

/** A packet behind the proxy's rules that is looked for a route, or the answer to it: then its ends have changed places. */
export interface Sent {
  readonly packet: Packet;
  readonly isAnswer: boolean;
  readonly device: string;
  readonly mark: number;
}

/** The types that let a packet go on. */
const LEADING = new Set(["unicast", "local", "broadcast", "multicast", "anycast"]);

export class IpRules {
  /** Whether some route or rule ends what meets it, or is not read. */
  readonly endsSome: boolean;
  readonly #rules: readonly SetRule[];
  readonly #tables: ReadonlyMap<string, Table>;

  constructor(rules: readonly SetRule[], tables: SetTables, family: IpFamily) {
    this.#rules = rules;
    this.#tables = new Map(Array.from(tables, ([name, routes]) => [name, new Table(routes, family)]));
    const types = [...[...tables.values()].flat(), ...rules].map(({ type }) => type);
    this.endsSome = types.some((type) => !LEADING.has(type)) || rules.some(({ unread }) => unread.length > 0);
  }

  /** @returns what ends it, with how to undo that; undefined if nothing does. @throws UnprovableError */
  ending(sent: Sent, ask: Ask): string | undefined {
    const found = this.way(sent, ask);
    if (found === undefined) return `no route to ${endsOf(sent).destination}`;
    if (LEADING.has(found.type)) return undefined;
    const { cidr, type } = found;
    return "priority" in found
      ? `the rule ${type} (ip rule delete priority ${found.priority})`
      : `the route ${type} ${cidr} (ip route delete ${type} ${cidr}${found.table === "main" ? "" : ` table ${found.table}`})`;
  }

  /** @throws UnprovableError if a rule that it meets is not read */
  way(sent: Sent, ask: Ask): (SetRoute & ({ readonly table: string } | { readonly priority: number })) | undefined {
    for (const rule of this.#rules) {
      const isMet = meets(rule, sent, ask);
      if (isMet && rule.unread.length > 0)
        throw new UnprovableError(
          `it depends on the ip rule ${rule.priority} (${rule.unread.join(", ")}), which is not read`,
        );
      if (isMet === rule.isNot) continue;
      const { table, priority, type, suppressed = -1 } = rule;
      if (table === undefined) return { cidr: "", type, device: undefined, priority };
      const found = this.#tables.get(table)?.routeOf(sent, ask);
      if (found === undefined || found.type === "throw" || found.length <= suppressed) continue;
      return { ...found, table };
    }
    return undefined;
  }
}

class Table {
  readonly #routes;
  readonly #known = new Map<IpAddress, (SetRoute & { readonly length: number }) | undefined>();
  readonly #questions: Readonly<Record<"source" | "destination", Question>>;

  constructor(routes: readonly SetRoute[], family: IpFamily) {
    this.#routes = routes.flatMap((route) => {
      const prefix = parseCidr(route.cidr);
      return prefix === undefined ? [] : [{ ...route, prefix, length: splitCidr(prefix).length }];
    });
    const keys = routes.flatMap(({ cidr, type, device }) =>
      prefixPatterns(cidr, family).map((pattern) => ({ patterns: [pattern], outcome: `${type} ${device}` })),
    );
    this.#questions = { source: fieldsQuestion(["source"], keys), destination: fieldsQuestion(["destination"], keys) };
  }

  routeOf(sent: Sent, ask: Ask) {
    ask(this.#questions[sent.isAnswer ? "source" : "destination"], sent.packet);
    const { destination } = endsOf(sent);
    if (!this.#known.has(destination))
      this.#known.set(
        destination,
        this.#routes.find(({ prefix }) => cidrContains(prefix, destination)),
      );
    return this.#known.get(destination);
  }
}

/** Whether the conditions that are read hold. */
function meets({ source, destination, device, mark }: SetRule, sent: Sent, ask: Ask): boolean {
  const { packet, isAnswer } = sent;
  if (mark !== undefined && ((sent.mark ^ mark.value) & mark.mask) !== 0) return false;
  if (device !== undefined) {
    if (!isAnswer) ask(whichOf("inInterface", [device === "lo" ? "" : device]), packet);
    if (device !== sent.device) return false;
  }
  const ends = endsOf(sent);
  const [from, to] = isAnswer ? (["destination", "source"] as const) : (["source", "destination"] as const);
  return isWithin(source, ends.source, from) && isWithin(destination, ends.destination, to);

  function isWithin(cidr: string | undefined, address: IpAddress, field: PacketField): boolean {
    if (cidr === undefined) return true;
    const prefix = parseCidr(cidr);
    ask(within(field, prefixPatterns(cidr, packet.family)), packet);
    return prefix !== undefined && cidrContains(prefix, address);
  }
}

function endsOf({ packet, isAnswer }: Sent): Pick<Packet, "source" | "destination"> {
  const { source, destination } = packet;
  return isAnswer ? { source: destination, destination: source } : { source, destination };
}
