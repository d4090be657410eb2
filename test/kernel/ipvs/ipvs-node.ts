/** A bare node whose daemon runs in ipvs mode, and other programs' changes to its virtual servers. */
import { existsSync } from "node:fs";
import type { TestContext } from "node:test";
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { type FaultOptions, faultNode, prepareDaemon, startDaemon } from "../faults/fault-node.ts";
import type { IpvsReply, IpvsRequest } from "./ipvs-program.ts";

const PROGRAM = new URL("ipvs-program.ts", import.meta.url);

/** How often failures are retried, and the kernel is compared with the desired state. */
const PERIOD = "2s";

type IpvsOptions = Omit<FaultOptions, "config"> & { readonly ipvs?: Readonly<Record<string, unknown>> };

function optionsOf({ ipvs, ...rest }: IpvsOptions): FaultOptions {
  return { ...rest, config: { mode: "ipvs", ipvs: { syncPeriod: PERIOD, minSyncPeriod: "1ms", ...ipvs } } };
}

/** A node with a daemon that has synced; both end with the test. */
export async function ipvsNode(
  t: Pick<TestContext, "after">,
  options: IpvsOptions = {},
): Promise<{ readonly node: NetworkNamespace; readonly daemon: ProxyDaemon }> {
  const node = await faultNode(t);
  return { node, daemon: await startDaemon(t, node, optionsOf(options)) };
}

/** Another daemon on such a node; ends with the test. */
export function ipvsDaemon(
  t: Pick<TestContext, "after">,
  node: NetworkNamespace,
  options: IpvsOptions,
): Promise<ProxyDaemon> {
  return startDaemon(t, node, optionsOf(options));
}

/** Like {@link ipvsNode}, with a daemon that is not started. */
export async function preparedNode(
  t: Pick<TestContext, "after">,
  options: IpvsOptions = {},
): Promise<{ readonly node: NetworkNamespace; readonly daemon: ProxyDaemon }> {
  const node = await faultNode(t);
  return { node, daemon: prepareDaemon(t, node, optionsOf(options)) };
}

/** The nodes' threads, which end with them. */
const programs = new WeakMap<NetworkNamespace, HelperThread<IpvsRequest, IpvsReply>>();

function programIn(node: NetworkNamespace): HelperThread<IpvsRequest, IpvsReply> {
  const program = programs.get(node) ?? new HelperThread<IpvsRequest, IpvsReply>(node, PROGRAM);
  programs.set(node, program);
  return program;
}

/** Another program removes every virtual server. */
export async function flushIpvs(node: NetworkNamespace): Promise<void> {
  await programIn(node).ask({ kind: "flush" });
}

/** Another program adds a TCP virtual server. */
export async function addVirtualServer(node: NetworkNamespace, address: string, port: number): Promise<void> {
  await programIn(node).ask({ kind: "add", address, port });
}

/** Every virtual server of both families with its real servers; equal text for equal state. Empty without IPVS. */
export async function listing(node: NetworkNamespace): Promise<string> {
  if (!existsSync("/proc/net/ip_vs")) return "";
  return (await programIn(node).ask({ kind: "list" })).text;
}

/**
 * Virtual servers as `TCP 10.96.0.1:80 rr`, each followed by its real servers in order, as `10.180.0.1:8080 1` (the
 * weight). IPv4. Starts no program, and is for tests in which no other namespace has virtual servers: otherwise the
 * kernel omits some of them from the file (it counts those of all namespaces at the end of a page of text).
 */
export async function virtualServers(node: NetworkNamespace): Promise<string[]> {
  const text = (hex: string) => {
    const [address = "", port = ""] = hex.split(":");
    const octets = (address.match(/../g) ?? []).map((octet) => Number.parseInt(octet, 16));
    return `${octets.join(".")}:${Number.parseInt(port, 16)}`;
  };
  const found: string[][] = [];
  for (const line of node.readProcNet("ip_vs").split("\n")) {
    const [, protocol, server, scheduler] = /^(TCP|UDP|SCTP) +([0-9A-F]{8}:[0-9A-F]{4}) (\S+)/.exec(line) ?? [];
    if (server !== undefined) found.push([`${protocol} ${text(server)} ${scheduler}`]);
    const [, real, weight] = /^ +-> ([0-9A-F]{8}:[0-9A-F]{4}) +Masq +(\d+)/.exec(line) ?? [];
    if (real !== undefined) found.at(-1)?.push(`${text(real)} ${weight}`);
  }
  return found.map(([server, ...reals]) => [server, ...reals.sort()].join(" ")).sort();
}

/** Addresses of kube-ipvs0, IPv4; none without the device. */
export async function boundAddresses(node: NetworkNamespace): Promise<string[]> {
  const { stdout } = await node.exec(["ip", "-4", "-o", "addr"]);
  return [...stdout.matchAll(/kube-ipvs0 +inet (\S+)\/32/g)].map(([, address = ""]) => address).sort();
}
