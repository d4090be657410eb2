/** The sources of rules that `kube-proxy prove` does not plan itself: dumps, read once for both families, and this node's kernel. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { ProvedVariant } from "../../contract/dataplane.ts";
import { isObject, textOf } from "../../kernel/nftables/json.ts";
import { MODES } from "../../modes/registry.ts";
import { familyOf, IP_FAMILIES, type IpAddress, type IpFamily } from "../../net/ip.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import { dumpedAddresses, hostAddresses } from "../explain/host-addresses.ts";
import type { Side } from "../prove/proof.ts";
import { rulesSide } from "../prove/sides.ts";
import type { BesideRules } from "./beside-rules.ts";
import { besideRulesOf, dumpFiles, rulesNotRead } from "./dump-folder.ts";
import { UsageError } from "./output.ts";
import { didYouMean } from "./suggestion.ts";
import { readDumps } from "./trace-rules.ts";

/** A mode, or a layout of a mode, that can be proved. */
export interface Variant extends ProvedVariant {
  readonly mode: string;
}

export const VARIANTS: readonly Variant[] = MODES.flatMap(({ name, proved = [] }) =>
  proved.map((variant) => ({ ...variant, mode: name })),
);

/** @throws UsageError */
export function variantNamed(word: string): Variant {
  const name = word.trim();
  const found = VARIANTS.find((variant) => variant.name === name);
  if (found !== undefined) return found;
  const names = VARIANTS.map((variant) => variant.name);
  throw new UsageError(
    `"${name}" is not one of the modes that can be proved: ${names.join(", ")}`,
    didYouMean(name, names),
  );
}

/** Existing rules of a node. */
export interface FoundRules {
  /** The families that have rules; nothing is known about others. */
  readonly families: ReadonlySet<IpFamily>;
  /** What could not be read, or is not examined. */
  readonly notes: readonly string[];
  /** What was asked for and answered, each in words. @default not said: the dumps are known */
  readonly read?: readonly string[];
  /** The mode that the rules identify themselves with; undefined if they do not. */
  readonly shown: Variant | undefined;
  /** Addresses of the machine that the rules come from, if known. */
  readonly addresses?: (family: IpFamily) => readonly IpAddress[];
  /** @param own addresses of the node. @param node what its proxy does, where its settings count, too. @default the rules alone */
  side(family: IpFamily, own: readonly IpAddress[], node?: { readonly guardsLoopback: boolean }): Side;
}

/** @throws UsageError */
export async function foundInDumps(paths: readonly string[], input: NodeJS.ReadableStream): Promise<FoundRules> {
  const files = await dumpFiles(paths, (name) => name === "nft.txt");
  const dumps: Dump[] = [];
  for (const { path, name } of files) dumps.push(...(await readDumps(path, name, input)));
  for (const what of await rulesNotRead(paths)) dumps.push({ kind: "unread", what, isOfRules: true });
  const kept = await besideRulesOf(paths);
  const beside = kept === undefined ? undefined : (await import("./beside-rules.ts")).besideRulesIn(kept);
  return found(files.map(({ name }) => name).join(", "), dumps, beside);
}

/** The mode that the rules in this host's kernel identify themselves with, and what could not be read. @throws UsageError */
export async function shownInKernel(families: readonly IpFamily[]) {
  const { kernelDumps } = await import("./trace-kernel.ts");
  const read = [];
  const shared = {};
  for (const family of families) read.push(await kernelDumps(family, shared));
  const dumps = read.flatMap((one) => one.dumps);
  const unread = dumps.flatMap((dump) => (dump.kind === "unread" ? [dump.what] : []));
  return { shown: shownBy(dumps), unread: [...new Set([...read.flatMap(({ notes }) => notes), ...unread])] };
}

/** @throws UsageError */
export async function foundInKernel(families: readonly IpFamily[], config: KubeProxyConfig): Promise<FoundRules> {
  const { kernelRules, withLiveSockets } = await import("./trace-kernel.ts");
  const { besideRulesHere } = await import("./beside-rules.ts");
  const read = new Map<IpFamily, Awaited<ReturnType<typeof withLiveSockets>>>();
  const shared = {};
  for (const family of families)
    read.set(family, await withLiveSockets(await kernelRules(family, [], shared), family, config, true));
  const addresses = (await Promise.all(families.map(hostAddresses))).flat();
  const beside = await besideRulesHere(families, (family) => read.get(family)?.routes);
  const name = "this node's kernel";
  const all = [...read.values()].flatMap(({ dumps }) => dumps);
  const led = [...read.values()].find(({ ledBy }) => ledBy !== undefined)?.ledBy;
  return {
    shown: VARIANTS.find(({ mode }) => mode === led) ?? shownBy(all),
    families: new Set(families),
    read: readWords([...all, ...beside.dumps], beside),
    notes: [...[...read.values()].flatMap(({ notes }) => notes), ...beside.notes],
    addresses: (family) => addresses.filter((own) => familyOf(own) === family),
    side(family, own, node) {
      const { dumps = [], addresses: all = [] } = read.get(family) ?? {};
      return sideBeside(beside, name, [...dumps, ...beside.dumps], family, [...own, ...all], node);
    },
  };
}

/** What the kernel has been asked for and has answered: what is in none of these is not known. */
function readWords(dumps: readonly Dump[], { families }: BesideRules): readonly string[] {
  const lists = Object.groupBy(dumps, ({ kind }) => kind);
  const tables = (lists.nftables ?? []).flatMap((dump) => ("objects" in dump ? tablesIn(dump.objects) : []));
  const entries = (lists.hooks ?? []).flatMap((dump) => ("entries" in dump ? dump.entries : []));
  const [first] = families.values();
  return [
    `nftables: ${tables.length / families.size} tables`,
    ...(lists.iptables === undefined ? [] : ["iptables: what iptables-save prints"]),
    ...(lists.ipset === undefined ? [] : ["ipset: all sets"]),
    ...(entries.length === 0 ? [] : [`hooks: ${entries.length} entries`]),
    ...(first === undefined ? [] : [`devices: ${first.settings.devices.length}, their programs, filters and settings`]),
    "ip rules, routes and xfrm policies",
  ];
}

/** @param beside what the node had beside them, if that is known. */
function found(name: string, rules: readonly Dump[], beside?: BesideRules): FoundRules {
  const { kernel, dumps: others = [], notes = [] } = beside ?? {};
  const dumps = [...rules.map((dump) => (dump.kind === "nftables" && kernel ? { ...dump, kernel } : dump)), ...others];
  const addresses = dumpedAddresses(dumps);
  return {
    families: new Set(IP_FAMILIES.filter((family) => dumps.some((dump) => isOf(dump, family)))),
    shown: shownBy(dumps),
    notes,
    ...(addresses !== undefined && { addresses: (family) => addresses.filter((own) => familyOf(own) === family) }),
    side: (family, own, node) => sideBeside(beside, name, dumps, family, own, node),
  };
}

/** @param node what its proxy does, where its settings count, too. */
function sideBeside(
  beside: BesideRules | undefined,
  name: string,
  dumps: readonly Dump[],
  family: IpFamily,
  own: readonly IpAddress[],
  node: Parameters<FoundRules["side"]>[2],
): Side {
  const { routes, settings } = beside?.families.get(family) ?? {};
  return rulesSide(name, dumps, family, own, { ...{ routes, ...node }, settings: node && settings });
}

function shownBy(dumps: readonly Dump[]): Variant | undefined {
  const texts = dumps.map(signsOf).join("\n");
  return VARIANTS.find(({ sign }) => sign?.test(texts) === true);
}

/** Whether the dump has rules of the family. */
function isOf(dump: Dump, family: IpFamily): boolean {
  switch (dump.kind) {
    case "iptables":
      return (dump.family ?? family) === family;
    case "nftables":
      return tablesIn(dump.objects).some((table) => ["inet", family === "IPv4" ? "ip" : "ip6"].includes(table));
    case "ipset":
      return new RegExp(` family inet${family === "IPv4" ? "" : "6"}(?: |$)`, "m").test(dump.text);
    case "chains":
      return dump.addresses?.some((address) => familyOf(address) === family) === true;
    default:
      return dump.kind === "walker";
  }
}

function tablesIn(objects: readonly unknown[]): string[] {
  return objects.flatMap((object) => {
    return isObject(object) && isObject(object.table) ? (textOf(object.table.family) ?? []) : [];
  });
}

/** The text that {@link ProvedVariant.sign} tests: lines of tools; for nft, a line per chain. */
function signsOf(dump: Dump): string {
  if ("text" in dump) return dump.text ?? "";
  if (dump.kind !== "nftables") return "";
  const chains = dump.objects.flatMap((object) => {
    return isObject(object) && isObject(object.chain) ? [`${object.chain.table} ${object.chain.name}`] : [];
  });
  return chains.join("\n");
}
