/** What decides beside the rules of a node: asked of the kernel here, and kept in a sysdump. */
import { release } from "node:os";
import { nodeCgroup } from "../../kernel/bpf/foreign-programs.ts";
import { type KernelVersion, parseKernelVersion } from "../../kernel/kernel-version.ts";
import { isObject } from "../../kernel/nftables/json.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { jsonIn } from "../../logging/attempt.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { KnownRoute } from "../../trace/facts.ts";
import type { NodeSettings } from "../prove/node-settings.ts";
import { notExamined, type StoredSettings, settingsIn, storedSettings } from "./node-settings.ts";
import { kernelHooks, mainRoutes, programsAtDevices } from "./trace-kernel.ts";

/** Hooks and programs that packets of both families meet. */
export interface BesideRules {
  readonly dumps: readonly Dump[];
  /** What is not known, in sentences without a full stop. */
  readonly notes: readonly string[];
}

interface StoredFamily {
  readonly settings: StoredSettings;
  readonly routes: readonly KnownRoute[];
}

/** As a sysdump has it. */
interface StoredBesideRules extends BesideRules, Readonly<Record<IpFamily, StoredFamily>> {
  /** The kernel's release. */
  readonly kernel: string;
}

/** What a sysdump says of its node. */
export interface KeptBesideRules extends BesideRules {
  readonly kernel: KernelVersion | undefined;
  readonly families: ReadonlyMap<IpFamily, { readonly settings: NodeSettings; readonly routes: readonly KnownRoute[] }>;
}

export async function besideRulesHere(): Promise<BesideRules> {
  const hooks = await kernelHooks();
  const cgroup = "the node's cgroup cannot be seen from here: programs at it are not known";
  const others = "this kernel does not list its hooks: what else is called at them is not known";
  return {
    dumps: [...(hooks === undefined ? [] : [hooks]), ...(await programsAtDevices(hooks))],
    notes: [...(nodeCgroup() === undefined ? [cgroup] : []), ...(hooks === undefined ? [others] : [])],
  };
}

/** For a sysdump, as text. @throws UsageError */
export async function besideRulesText(): Promise<string> {
  const ofFamily = async (family: IpFamily): Promise<[IpFamily, StoredFamily]> => {
    const routes = await mainRoutes(family, await localAddresses(family));
    return [family, { settings: await storedSettings(family), routes }];
  };
  const families = Object.fromEntries(await Promise.all(IP_FAMILIES.map(ofFamily)));
  return `${JSON.stringify({ kernel: release(), ...(await besideRulesHere()), ...families }, undefined, 1)}\n`;
}

/** @returns undefined for any other text */
export function besideRulesIn(text: string): KeptBesideRules | undefined {
  const found: unknown = jsonIn(text);
  if (!isStored(found)) return undefined;
  const families = IP_FAMILIES.map((family) => {
    const { settings, routes } = found[family];
    return [family, { settings: settingsIn(settings, family), routes }] as const;
  });
  return {
    kernel: parseKernelVersion(found.kernel),
    dumps: found.dumps,
    notes: [...found.notes, ...families.flatMap(([, { settings }]) => notExamined(settings))],
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
