/** Settings and routes of this node that decide beside its rules; reading them needs no right. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isObject, textOf } from "../../kernel/nftables/json.ts";
import { execProcess } from "../../kernel/process.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { NodeSettings, SetRoute, XfrmPolicy } from "../prove/node-settings.ts";
import { cidrOf, ipJson, LIMIT_MS, lengthOf } from "./trace-kernel.ts";

/** Kinds of devices that lead to other machines; those of hardware have none. */
const UPLINKS = new Set([undefined, "vlan", "bond", "team", "macvlan", "ipvlan"]);
/** The rules of a node that has no others: `ip rule` puts `local` first. */
const USUAL_TABLES = new Set(["local", "main", "default"]);

/** @throws UsageError */
export async function nodeSettings(family: IpFamily): Promise<NodeSettings> {
  const version = family === "IPv4" ? "-4" : "-6";
  const links = (await ipJson("-d", "link", "show")).filter(isObject).flatMap((link) => {
    const name = textOf(link.ifname);
    const kind = isObject(link.linkinfo) ? textOf(link.linkinfo.info_kind) : undefined;
    return name === undefined ? [] : [{ name, kind, isLoopback: link.link_type === "loopback" }];
  });
  // A kernel may be built without rules.
  const rules = await ipJson(version, "rule", "show").catch((): readonly unknown[] => []);
  const isUsual = rules.filter(isObject).every(({ priority: _, src, table, ...conditions }) => {
    return src === "all" && USUAL_TABLES.has(textOf(table) ?? "") && Object.keys(conditions).length === 0;
  });
  const listed = isUsual ? await ipJson(version, "route", "show", "table", "main") : [];
  const routes = listed.filter(isObject).map((route): SetRoute => {
    const { dst, dev, type = "unicast" } = route;
    return { cidr: cidrOf(String(dst), family), type: String(type), device: textOf(dev) };
  });
  const known = new Map<string, number | undefined>();
  return {
    devices: links.map(({ name }) => name),
    bridges: new Set(links.flatMap(({ name, kind }) => (kind === "bridge" ? [name] : []))),
    uplinks: new Set([
      ...links.flatMap(({ name, kind, isLoopback }) => (UPLINKS.has(kind) && !isLoopback ? [name] : [])),
      ...routes.flatMap(({ cidr, device }) => (lengthOf(cidr) === 0 && device !== undefined ? [device] : [])),
    ]),
    routes: isUsual ? routes.sort((a, b) => lengthOf(b.cidr) - lengthOf(a.cidr)) : undefined,
    policies: await xfrmPolicies(version),
    read(name) {
      if (!known.has(name)) known.set(name, parameterAt(name));
      return known.get(name);
    },
  };
}

/** Netlink's number of xfrm: asked where the kernel does not have it, `ip` would load it. */
const XFRM_IS_LOADED = /^\S+ +6 /m;
const POLICY = /^(src (\S+) dst (\S+).*)\n\s+(dir (?:out|fwd)(?: action block)?)/gm;

async function xfrmPolicies(version: string): Promise<readonly XfrmPolicy[]> {
  if (!XFRM_IS_LOADED.test(readFileSync("/proc/net/netlink", "utf8"))) return [];
  const { status, stdout, stderr } = await execProcess("ip", [version, "xfrm", "policy"], { timeoutMs: LIMIT_MS });
  const all = version === "-4" ? "0.0.0.0/0" : "::/0";
  if (status !== 0) return [{ source: all, destination: all, text: `any xfrm policy (${stderr.trim()})` }];
  return [...stdout.matchAll(POLICY)].map(([, selector = "", source = "", destination = "", direction]) => {
    return { source, destination, text: `the xfrm policy ${selector.trim()} ${direction}` };
  });
}

function parameterAt(name: string): number | undefined {
  try {
    return Number(readFileSync(join("/proc/sys", name), "utf8"));
  } catch {
    return undefined;
  }
}
