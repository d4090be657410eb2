/** Settings and routes of this node that decide beside its rules; reading them needs no right. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isObject, textOf } from "../../kernel/nftables/json.ts";
import type { Device } from "../../kernel/route/devices.ts";
import type { IpFamily } from "../../net/ip.ts";
import { IpRules, type SetRule } from "../prove/ip-rules.ts";
import { type NodeSettings, parametersOf, type XfrmPolicy } from "../prove/node-settings.ts";
import { toolText } from "./tool-text.ts";
import { cidrOf, ipJson, lengthOf } from "./trace-kernel.ts";

/** Kinds of devices that lead to other machines; those of hardware have none. */
const UPLINKS = new Set([undefined, "vlan", "bond", "team", "macvlan", "ipvlan"]);

/** As the kernel and `ip` say it, with each parameter that decides. */
export interface StoredSettings {
  readonly links: readonly Omit<Device, "index" | "xdp">[];
  readonly rules: readonly unknown[];
  readonly routes: readonly unknown[];
  readonly policies: readonly XfrmPolicy[];
  readonly parameters: Readonly<Record<string, number>>;
}

/** @param isWhole with all parameters. @throws UsageError */
export async function storedSettings(
  family: IpFamily,
  links: readonly Device[],
  isWhole: boolean,
): Promise<StoredSettings> {
  const version = family === "IPv4" ? "-4" : "-6";
  const parameters = parametersOf(isWhole ? links.map(({ name }) => name) : []).flatMap((name) => {
    const value = parameterAt(name);
    return value === undefined ? [] : [[name, value] as const];
  });
  return {
    links,
    // A kernel may be built without rules.
    rules: await ipJson(version, "rule", "show").catch((): readonly unknown[] => USUAL_RULES),
    routes: await ipJson(version, "route", "show", "table", "all"),
    policies: await xfrmPolicies(version),
    parameters: Object.fromEntries(parameters),
  };
}

/** @param read a parameter that a proof asks for */
export function settingsIn(
  { links, rules, routes: all, policies }: StoredSettings,
  family: IpFamily,
  read: NodeSettings["read"],
): NodeSettings {
  const listed = all.filter(isObject).map((route) => {
    const { dst, dev, type = "unicast", table = "main" } = route;
    const cidr = cidrOf(String(dst), family);
    return { cidr, type: String(type), device: textOf(dev), table: String(table) };
  });
  const routes = listed.sort((a, b) => lengthOf(b.cidr) - lengthOf(a.cidr));
  return {
    devices: links.map(({ name }) => name),
    bridges: new Set(links.flatMap(({ name, kind }) => (kind === "bridge" ? [name] : []))),
    uplinks: new Set([
      ...links.flatMap(({ name, kind, isLoopback }) => (UPLINKS.has(kind) && !isLoopback ? [name] : [])),
      ...routes.flatMap(({ cidr, device, table }) =>
        table === "main" && lengthOf(cidr) === 0 && device !== undefined ? [device] : [],
      ),
    ]),
    routes: new IpRules(
      rules.filter(isObject).flatMap((rule) => ruleOf(rule, family)),
      Map.groupBy(routes, ({ table }) => table),
      family,
    ),
    withoutHairpin: links.flatMap(({ name, lacksHairpin }) => (lacksHairpin ? [name] : [])),
    vrfs: new Map(links.flatMap(({ name, portOf, master = "" }) => (portOf === "vrf" ? [[name, master]] : []))),
    policies,
    read,
  };
}

const USUAL_RULES = ["local", "main", "default"].map((table, priority) => ({ priority, src: "all", table }));

/** In the words of `ip -j rule`. None for a rule that only devices of a VRF meet, or that does nothing. */
function ruleOf(rule: Readonly<Record<string, unknown>>, family: IpFamily): SetRule[] {
  const { priority, not, src, srclen, dst, dstlen, iif, fwmark, fwmask, table, action, suppress_prefixlen, ...others } =
    rule;
  const { protocol: _, ...unread } = others;
  if ("l3mdev" in rule || "nop" in rule) return [];
  const prefix = (address: unknown, length: unknown) =>
    address === undefined || address === "all"
      ? undefined
      : cidrOf(length === undefined ? `${address}` : `${address}/${length}`, family);
  return [
    {
      priority: Number(priority),
      isNot: not !== undefined,
      source: prefix(src, srclen),
      destination: prefix(dst, dstlen),
      device: textOf(iif),
      mark: fwmark === undefined ? undefined : { value: Number(fwmark), mask: Number(fwmask ?? 0xffff_ffff) },
      unread: Object.keys(unread),
      table: textOf(table),
      suppressed: Number(suppress_prefixlen ?? -1),
      type: textOf(action) ?? "unicast",
    },
  ];
}

/** What the settings leave out of every answer. */
export function notExamined({ devices, read }: NodeSettings): readonly string[] {
  const isSet = (device: string) => read(`net/ipv4/conf/${device}/accept_local`) === 1;
  return ["all", ...devices]
    .filter(isSet)
    .map(
      (name) =>
        `net.ipv4.conf.${name}.accept_local = 1: packets from the node's own addresses that come in are not examined`,
    );
}

/** Netlink's number of xfrm: asked where the kernel does not have it, `ip` would load it. */
const XFRM_IS_LOADED = /^\S+ +6 /m;
const POLICY = /^(src (\S+) dst (\S+).*)\n\s+(dir (?:out|fwd)(?: action block)?)/gm;

async function xfrmPolicies(version: string): Promise<readonly XfrmPolicy[]> {
  if (!XFRM_IS_LOADED.test(readFileSync("/proc/net/netlink", "utf8"))) return [];
  const all = version === "-4" ? "0.0.0.0/0" : "::/0";
  const text = await toolText(["ip", version, "xfrm", "policy"]).catch(({ message }: Error) => ({ message }));
  if (typeof text !== "string") return [{ source: all, destination: all, text: `any xfrm policy (${text.message})` }];
  return [...text.matchAll(POLICY)].map(([, selector = "", source = "", destination = "", direction]) => {
    return { source, destination, text: `the xfrm policy ${selector.trim()} ${direction}` };
  });
}

/** A parameter of the kernel as it is now; undefined if it has none of this name. */
export function parameterAt(name: string): number | undefined {
  try {
    return Number(readFileSync(join("/proc/sys", name), "utf8"));
  } catch {
    return undefined;
  }
}
