/** What decides beside the rules of a node: asked of the kernel here, and kept in a sysdump. */
import { release } from "node:os";
import { nodeCgroup } from "../../kernel/bpf/foreign-programs.ts";
import { type KernelVersion, parseKernelVersion } from "../../kernel/kernel-version.ts";
import { isObject } from "../../kernel/nftables/json.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { devicesHere } from "../../kernel/route/devices.ts";
import { jsonIn } from "../../logging/attempt.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { KnownRoute } from "../../trace/facts.ts";
import type { NodeSettings } from "../prove/node-settings.ts";
import { notExamined, parameterAt, type StoredSettings, settingsIn, storedSettings } from "./node-settings.ts";
import { kernelHooks, mainRoutes, programsAtDevices } from "./trace-kernel.ts";

interface StoredFamily {
  readonly settings: StoredSettings;
  readonly routes: readonly KnownRoute[];
}

/** As a sysdump has it. */
interface StoredBesideRules extends Readonly<Partial<Record<IpFamily, StoredFamily>>> {
  /** The kernel's release. */
  readonly kernel: string;
  /** Hooks and programs that packets of both families meet. */
  readonly dumps: readonly Dump[];
  /** What is not known, in sentences without a full stop. */
  readonly notes: readonly string[];
}

/** The same, as proofs take it. */
export interface BesideRules extends Pick<StoredBesideRules, "dumps" | "notes"> {
  readonly kernel: KernelVersion | undefined;
  readonly families: ReadonlyMap<IpFamily, { readonly settings: NodeSettings; readonly routes: readonly KnownRoute[] }>;
}

/** Those of the table main that have been read already. */
type RoutesOf = (family: IpFamily) => readonly KnownRoute[] | undefined;

/** @param given for proofs, which read parameters as they need them. @default all is read */
async function readBesideRules(of: readonly IpFamily[], given?: RoutesOf): Promise<StoredBesideRules> {
  const devices = await devicesHere();
  const ofFamily = async (family: IpFamily): Promise<[IpFamily, StoredFamily]> => {
    const routes = given?.(family) ?? (await mainRoutes(family, await localAddresses(family)));
    return [family, { settings: await storedSettings(family, devices, given === undefined), routes }];
  };
  const families = Object.fromEntries(await Promise.all(of.map(ofFamily)));
  const hooks = await kernelHooks(devices);
  const cgroup = "the node's cgroup cannot be seen from here: programs at it are not known";
  const others = "this kernel does not list its hooks: what else is called at them is not known";
  return {
    kernel: release(),
    dumps: [...(hooks === undefined ? [] : [hooks]), ...(await programsAtDevices(devices, hooks))],
    notes: [...(nodeCgroup() === undefined ? [cgroup] : []), ...(hooks === undefined ? [others] : [])],
    ...families,
  };
}

/** @throws UsageError */
export async function besideRulesHere(families: readonly IpFamily[], given: RoutesOf): Promise<BesideRules> {
  const known = new Map<string, number | undefined>();
  return understood(await readBesideRules(families, given), (name) => {
    if (!known.has(name)) known.set(name, parameterAt(name));
    return known.get(name);
  });
}

/** For a sysdump, as text. @param history what a daemon has seen meanwhile. @throws UsageError */
export async function besideRulesText(history: readonly Dump[]): Promise<string> {
  const { dumps, ...others } = await readBesideRules(IP_FAMILIES);
  return `${JSON.stringify({ ...others, dumps: [...dumps, ...history] }, undefined, 1)}\n`;
}

/** @returns undefined for any other text */
export function besideRulesIn(text: string): BesideRules | undefined {
  const found: unknown = jsonIn(text);
  return isStored(found) ? understood(found) : undefined;
}

/** @param read a parameter that is not stored. @default all are */
function understood(stored: StoredBesideRules, read?: NodeSettings["read"]): BesideRules {
  const families = IP_FAMILIES.flatMap((family) => {
    const { settings: kept, routes } = stored[family] ?? {};
    if (kept === undefined || routes === undefined) return [];
    const settings = settingsIn(kept, family, read ?? ((name) => kept.parameters[name]));
    return [[family, { settings, routes }] as const];
  });
  return {
    kernel: parseKernelVersion(stored.kernel),
    dumps: stored.dumps,
    notes: [...stored.notes, ...families.flatMap(([, { settings }]) => notExamined(settings))],
    families: new Map(families),
  };
}

function isStored(found: unknown): found is StoredBesideRules {
  if (!isObject(found) || ![found.dumps, found.notes].every(Array.isArray)) return false;
  return typeof found.kernel === "string" && IP_FAMILIES.every((family) => isStoredFamily(found[family]));
}

function isStoredFamily(one: unknown): boolean {
  if (!isObject(one) || !isObject(one.settings) || !Array.isArray(one.routes)) return false;
  const { links, rules, routes, policies, parameters } = one.settings;
  return [links, rules, routes, policies].every(Array.isArray) && isObject(parameters);
}
