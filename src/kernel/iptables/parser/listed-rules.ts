/**
 * Rules as people cut them out of a listing: lines that `grep` found in the output of iptables-save, or what `iptables -S` prints.
 * They become a text as iptables-save prints it.
 */
import { targetOf } from "./rule-parts.ts";

export interface ListedRules {
  readonly text: string;
  /** Whether other rules of its tables are missing. */
  readonly isPart: boolean;
}

/** The target in place of all rules that a part does not have. */
export const REST = "NOT-IN-THE-DUMP";
const SAYS_REST = `-m comment --comment "not in the dump"`;

/** Grep's name of a file and number of a line may precede. */
const LINE =
  /^(?:[\w./-]+:)?(?:\d+[:-])?(?:(?:\[\d+:\d+\] )?-A ([^-\s]\S*)(?: (.*))?|:(\S+) (\S+)(?: \[\d+:\d+\])?|-N (\S+)|-P (\S+) ([A-Z]+)(?: .*)?)$/;
const HAS_TABLE = /^\*\w+$/m;
const HAS_RULE = /^(?:[\w./-]+:)?(?:\d+[:-])?(?:(?:\[\d+:\d+\] )?-A [^-\s]\S*|-P \S+ [A-Z]+)(?: |$)/m;

/** By chain: its policy, or `-`, and its rules. */
type Table = Map<string, { policy: string; readonly rules: string[] }>;

/** @returns undefined if it has tables as iptables-save prints them, or no rules. */
export function listedRules(text: string): ListedRules | undefined {
  if (!HAS_RULE.test(text) || HAS_TABLE.test(text)) return undefined;
  const tables = new Map<string, Table>();
  const lines = text.split("\n").map((line) => LINE.exec(line.trim()) ?? []);
  const policies = new Set(lines.flatMap(([, , , , , , base]) => base ?? []));
  const isPart = policies.size === 0;
  for (const [, chain, rule = "", declared, given = "-", made, base, policy = "-"] of lines) {
    const name = chain ?? declared ?? made ?? base;
    if (name === undefined) continue;
    const table = isPart ? tableOf(name, rule) : wholeTable(policies);
    const own = chainOf(tableNamed(tables, table), name);
    if (chain !== undefined) own.rules.push(rule);
    else if (declared !== undefined || base !== undefined) own.policy = declared === undefined ? policy : given;
  }
  if (isPart) {
    fillNat(tableNamed(tables, "nat"));
    const filter = tables.get("filter");
    if (filter !== undefined) fillFilter(filter);
  }
  return { text: [...tables].map(([name, table]) => printed(name, table)).join(""), isPart };
}

function tableNamed(tables: Map<string, Table>, name: string): Table {
  const table: Table = tables.get(name) ?? new Map();
  tables.set(name, table);
  return table;
}

function chainOf(table: Table, name: string) {
  const chain = table.get(name) ?? { policy: BUILT_IN.has(name) ? "ACCEPT" : "-", rules: [] };
  table.set(name, chain);
  return chain;
}

const BUILT_IN = new Set(["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"]);
/** Chains that kube-proxy and kubelet have in filter alone. */
const OF_FILTER = /^(?:INPUT|FORWARD|KUBE-(?:FORWARD|PROXY-FIREWALL|EXTERNAL-SERVICES|FIREWALL))$/;

function tableOf(chain: string, rule: string): string {
  const isFilter = OF_FILTER.test(chain) || /^(?:REJECT|DROP)$/.test(targetOf(rule) ?? "");
  return isFilter ? "filter" : "nat";
}

/** The table that has these built-in chains. */
function wholeTable(chains: ReadonlySet<string>): string {
  if (chains.has("FORWARD")) return chains.has("PREROUTING") ? "mangle" : "filter";
  return chains.has("POSTROUTING") ? "nat" : "raw";
}

/** Leads packets to the chains of a part, as kube-proxy's rules do, and says where the rest is missing. */
function fillNat(table: Table): void {
  const all = [...table.values()].flatMap(({ rules }) => rules.map(targetOf));
  const isMissing = (chain: string) => table.has(chain) && !all.includes(chain);
  if (isMissing("KUBE-NODEPORTS"))
    chainOf(table, "KUBE-SERVICES").rules.push(`${SAYS_REST} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`);
  if (all.includes("KUBE-MARK-MASQ") && !table.has("KUBE-MARK-MASQ"))
    chainOf(table, "KUBE-MARK-MASQ").rules.push(`${SAYS_REST} -j MARK --set-xmark 0x4000/0x4000`);
  const jumpsTo = (rules: readonly string[], chain: string) => rules.some((rule) => targetOf(rule) === chain);
  for (const [base, chain] of [
    ["PREROUTING", "KUBE-SERVICES"],
    ["OUTPUT", "KUBE-SERVICES"],
    ["POSTROUTING", "KUBE-POSTROUTING"],
  ] as const) {
    const { rules } = chainOf(table, base);
    if (table.has(chain) && !jumpsTo(rules, chain)) rules.push(`${SAYS_REST} -j ${chain}`);
    rules.push(`${SAYS_REST} -j ${REST}`);
  }
}

function fillFilter(table: Table): void {
  const all = [...table.values()].flatMap(({ rules }) => rules.map(targetOf));
  for (const [base, chain] of [
    ...["INPUT", "FORWARD", "OUTPUT"].map((base) => [base, "KUBE-PROXY-FIREWALL"] as const),
    ...["FORWARD", "OUTPUT"].map((base) => [base, "KUBE-SERVICES"] as const),
    ...["INPUT", "FORWARD"].map((base) => [base, "KUBE-EXTERNAL-SERVICES"] as const),
    ["FORWARD", "KUBE-FORWARD"] as const,
  ]) {
    if (table.has(chain) && !all.includes(chain)) chainOf(table, base).rules.push(`${SAYS_REST} -j ${chain}`);
  }
}

function printed(name: string, table: Table): string {
  const heads = [...table].map(([chain, { policy }]) => `:${chain} ${policy} [0:0]\n`);
  const rules = [...table].flatMap(([chain, own]) => own.rules.map((rule) => `${`-A ${chain} ${rule}`.trimEnd()}\n`));
  return `*${name}\n${heads.join("")}${rules.join("")}COMMIT\n`;
}
