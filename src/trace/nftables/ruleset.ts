/** libnftables' JSON, or a listing read as such, as chains and sets to walk. */

import type { KernelVersion } from "../../kernel/kernel-version.ts";
import { isObject, type JsonObject, listOf, named, numberOf, textOf } from "../../kernel/nftables/json.ts";
import { ruleText } from "../../kernel/nftables/json-text.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { extensionSteps } from "../iptables/ruleset.ts";
import { type IpSets, type Surroundings as IptablesSurroundings, UNKNOWN_LISTS } from "../iptables/surroundings.ts";
import { type BaseChain, type Chain, type Entry, HOOKS, type Hook, type Rule } from "../netfilter/program.ts";
import { indexedChain, withSettled } from "../netfilter/rule-index.ts";
import type { PacketField } from "../question.ts";
import { limitAddedKeys } from "./added-keys.ts";
import { NAMES } from "./constant.ts";
import type { Surroundings } from "./expression.ts";
import { SetIndex } from "./named-set.ts";
import { keysIn } from "./rule-key.ts";
import { areIdle, compileStatement, hasRate } from "./statement.ts";

interface NftRulesetOptions {
  readonly family: IpFamily;
  readonly facts: NodeFacts;
  /** Whether the listed elements of sets that packets fill are complete. @default true */
  readonly knowsDynamicSets?: boolean;
  /** Of matches and targets of iptables. @default nothing is known */
  readonly iptables?: Omit<IptablesSurroundings, "facts">;
  /** @default not known */
  readonly kernel?: KernelVersion | undefined;
  /** Tables to leave out, as `family name`. @default none */
  readonly without?: ReadonlySet<string>;
}

export interface NftRuleset {
  readonly chains: readonly BaseChain[];
  /** Adds what a packet wrote into a set. */
  remember(entry: Entry): void;
  /** Removes everything that {@link remember} added. */
  forget(): void;
}

interface OpenTable {
  readonly label: string;
  onlyIf?: string;
  readonly sets: Map<string, SetIndex>;
  readonly chains: Map<string, { readonly head: JsonObject; readonly rules: JsonObject[] }>;
}

const FAMILIES: Readonly<Record<IpFamily, ReadonlySet<unknown>>> = {
  IPv4: new Set(["ip", "inet"]),
  IPv6: new Set(["ip6", "inet"]),
};

/** Reads the rules that packets of one family meet. @param objects the list at the JSON key `nftables`. */
export function readNftRuleset(objects: readonly unknown[], options: NftRulesetOptions): NftRuleset {
  const tables = new Map<string, OpenTable>();
  const switchedOff = new Set<string>();
  const versions = objects.flatMap((object) =>
    isObject(object) && isObject(object.metainfo) ? [object.metainfo] : [],
  );
  for (const object of objects) {
    if (!isObject(object)) continue;
    for (const [kind, body] of Object.entries(object)) {
      if (!isObject(body)) continue;
      const label = `${textOf(body.family) ?? ""} ${textOf(kind === "table" ? body.name : body.table) ?? ""}`;
      if (kind === "metainfo" || options.without?.has(label) === true) continue;
      if (!FAMILIES[options.family].has(body.family)) continue;
      const table: OpenTable = tables.get(label) ?? { label, sets: new Map(), chains: new Map() };
      if (kind === "table" && body.flags !== undefined) {
        if (versions.some(isBeforeFlags)) table.onlyIf = `the table ${label} is awake (${FLAGS_UNREADABLE})`;
        // The kernel does not call the chains of a dormant table.
        else if ([body.flags].flat().includes("dormant")) switchedOff.add(label);
      }
      tables.set(label, table);
      addObject(table, kind, body, options);
    }
  }
  return {
    chains: [...tables].flatMap(([label, table]) => (switchedOff.has(label) ? [] : baseChainsOf(table, options))),
    remember(entry) {
      tables
        .get(entry.table ?? "")
        ?.sets.get(entry.set)
        ?.remember(entry);
    },
    forget() {
      for (const { sets } of tables.values()) for (const set of sets.values()) set.forget();
    },
  };
}

const FLAGS_UNREADABLE = "nft before 1.1.3 prints its flags wrongly in JSON: nft list ruleset has them";

/** Whether nft prints something else in the place of a table's flags: 0.9.8 and 1.0.6 do, 1.1.3 does not. */
function isBeforeFlags({ version }: JsonObject): boolean {
  const [major = 0, minor = 0, patch = 0] = (textOf(version) ?? "").split(".").map(Number);
  return major < 1 || (major === 1 && (minor < 1 || (minor === 1 && patch < 3)));
}

function addObject(table: OpenTable, kind: string, body: JsonObject, options: NftRulesetOptions): void {
  const name = textOf(body.name) ?? "";
  switch (kind) {
    case "chain":
      table.chains.set(name, { head: body, rules: [] });
      return;
    case "set":
    case "map": {
      const flags = listOf(body.flags);
      const isFilledByPackets = flags.includes("timeout") || flags.includes("dynamic");
      const isUnknown = isFilledByPackets && options.knowsDynamicSets === false;
      const names = listOf(body.type).map((type) => (type === "inet_proto" ? NAMES.protocol : undefined));
      table.sets.set(
        name,
        new SetIndex(`@${name}`, kind === "map", listOf(body.elem), names, isUnknown, hasRate(body.stmt)),
      );
      return;
    }
    case "rule":
      table.chains.get(textOf(body.chain) ?? "")?.rules.push(body);
  }
}

interface RuleSurroundings extends Surroundings {
  readonly family: IpFamily;
  readonly iptables: IptablesSurroundings;
}

const NO_SETS: IpSets = { has: () => undefined, asks: () => undefined };

function baseChainsOf({ label, sets, chains, onlyIf }: OpenTable, options: NftRulesetOptions): BaseChain[] {
  const written = limitAddedKeys(
    [...chains.values()].flatMap(({ rules }) => rules),
    sets,
  );
  const { facts, family, kernel, iptables = { sets: NO_SETS, recent: UNKNOWN_LISTS } } = options;
  const surroundings: RuleSurroundings = {
    ...{ facts, family, kernel, table: label, written },
    ...{ setNamed: (name) => sets.get(name), iptables: { ...iptables, facts } },
  };
  const compiled = new Map<string, Chain>();
  for (const [name, { rules }] of chains) {
    const ruleAt = (index: number) => rules[index] ?? {};
    const keysAt = (index: number) => keysIn(ruleAt(index));
    const compile = (index: number, settled?: PacketField) => compileRule(ruleAt(index), surroundings, settled);
    compiled.set(name, indexedChain({ name, length: rules.length, keysAt, compile }));
  }
  const found: BaseChain[] = [];
  for (const [name, { head }] of chains) {
    const stage = HOOKS.find((known): known is Hook => known === head.hook);
    const chain = compiled.get(name);
    if (stage === undefined || chain === undefined) continue;
    found.push({
      table: label,
      type: head.type === "nat" ? "nat" : "filter",
      stage,
      priority: numberOf(head.prio) ?? 0,
      policy: head.policy === "drop" ? "drop" : "accept",
      chain,
      handle: numberOf(head.handle),
      reroutes: head.type === "route",
      onlyIf,
      chainNamed: (other) => compiled.get(other),
    });
  }
  return found;
}

/** @param settled the field that is compared before the rule is looked at. */
function compileRule(json: JsonObject, around: RuleSurroundings, settled: PacketField | undefined): Rule {
  const statements = listOf(json.expr);
  const compared = statements.map((one) => named(named(one).fields.left));
  const isOfConnection = compared.some(({ name, fields }) => name === "ct" && fields.key === "protocol");
  const surroundings: RuleSurroundings = { ...around, isOfConnection };
  const comment = textOf(json.comment);
  return {
    get text() {
      return textOf(json.text) ?? ruleText(statements, comment);
    },
    comment,
    isIdle: areIdle(statements),
    steps: withSettled(
      statements.flatMap((statement) => {
        const { name, fields } = named(statement);
        const options = name === "xt" ? textOf(fields.options) : undefined;
        return options === undefined
          ? compileStatement(statement, surroundings)
          : extensionSteps(options, { family: surroundings.family, surroundings: surroundings.iptables });
      }),
      settled && keysIn(json).find(({ field }) => field === settled)?.at,
      settled,
    ),
  };
}
