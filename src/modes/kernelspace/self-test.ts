/**
 * Tests HNS on this host, for people with a Windows node, since the project has none. With writes, it creates one endpoint and one load
 * balancer at documentation addresses (RFC 5737), compares what it sent with what it reads back, and removes them.
 */

import { messageOf } from "../../logging/message-of.ts";
import type { IpAddress } from "../../net/ip.ts";
import {
  type HcnEndpoint,
  type HcnLoadBalancer,
  type HcnNetwork,
  type LoadBalancerSettings,
  loadBalancerText,
} from "./hcn/documents.ts";
import type { Guid } from "./hcn/guid.ts";
import { Hcn } from "./hcn/hcn.ts";
import type { HcnCalls } from "./hcn/hcn-calls.ts";
import { hnsFeatures, hnsVersionText } from "./hcn/hns-version.ts";
import { isOverlay, missingNetworkText } from "./host-state.ts";
import { isAsWanted } from "./load-balancer-writer.ts";
import { remoteMac } from "./ownership.ts";

export interface SelfTestOptions {
  readonly calls: HcnCalls;
  readonly networkName: string;
  readonly writes: boolean;
  /** Monotonic. */
  nowMs(): number;
  print(line: string): void;
}

const POD = "192.0.2.1" as IpAddress; // canonical, like the next two
const VIP = "192.0.2.2" as IpAddress;
const PROVIDER = "192.0.2.3" as IpAddress;
const PORT = 32_750;

/** Reads HNS, and prints what it finds and how long calls take. @returns whether everything is as this program needs it. */
export async function testHost({ calls, networkName, writes, nowMs, print }: SelfTestOptions): Promise<boolean> {
  const times = new Map<string, number[]>();
  const raw = new Map<string, string>();
  let isGood = true;
  const fault = (line: string): void => {
    isGood = false;
    print(`FAULT: ${line}`);
  };
  const hcn = new Hcn(watched(calls, nowMs, times, raw), {
    unread: (kind, id, problem) => fault(`${kind} ${id}: its document ${problem}`),
    otherSchema: (kind, id, version) => print(`${kind} ${id}: schema version ${version}`),
  });
  try {
    const version = await hcn.version();
    const features = hnsFeatures(version);
    const has = Object.entries(features).flatMap(([name, isThere]) => (isThere ? [name] : []));
    print(`HNS ${hnsVersionText(version)}: ${has.join(", ") || "nothing that is needed"}`);
    if (!features.apiV2) fault("HNS 9.2 is needed");
    const network = await hcn.named("Network", networkName);
    if (network === undefined) fault(missingNetworkText(networkName));
    else {
      print(`network ${network.name}: ${network.type}, ${network.remoteSubnets.length} remote subnets, ${network.id}`);
      const [endpoints, loadBalancers] = [
        await hcn.all("Endpoint", { VirtualNetwork: network.id }),
        await hcn.all("LoadBalancer"),
      ];
      const remote = endpoints.filter(({ isRemote }) => isRemote).length;
      print(
        `endpoints: ${endpoints.length}, of these remote: ${remote}; load balancers of the host: ${loadBalancers.length}`,
      );
      print(`first version's view: ${(await hcn.policyLists()).size} load balancers`);
      if (writes) await writeAndRead(hcn, network, features.modifyLoadBalancer, { print, fault });
    }
  } catch (error) {
    fault(messageOf(error));
  }
  for (const [kind, text] of raw) print(`raw ${kind}: ${text}`);
  for (const [call, taken] of times) {
    const sorted = taken.toSorted((a, b) => a - b);
    const [median = 0, most = 0] = [sorted[sorted.length >> 1], sorted.at(-1)];
    print(`${call}: ${taken.length} calls, median ${median.toFixed(1)} ms, longest ${most.toFixed(1)} ms`);
  }
  return isGood;
}

type Report = Record<"print" | "fault", (line: string) => void>;

async function writeAndRead(hcn: Hcn, network: HcnNetwork, canModify: boolean, report: Report): Promise<void> {
  const { print, fault } = report;
  const made: (readonly ["Endpoint" | "LoadBalancer", Guid])[] = [];
  try {
    const endpoint = await hcn.createEndpoint({
      network: network.id,
      address: POD,
      mac: remoteMac(POD),
      isRemote: true,
      ...(isOverlay(network) && { providerAddress: network.remoteSubnets[0]?.providerAddress ?? PROVIDER }),
    });
    made.unshift(["Endpoint", endpoint.id]);
    if (endpoint.isRemote && endpoint.addresses.includes(POD)) print(`endpoint ${POD}: as it was sent`);
    else fault(`endpoint ${POD}: read back as ${JSON.stringify(endpoint)}`);
    const first = settingsFor(endpoint, PORT);
    const loadBalancer = await hcn.createLoadBalancer(first);
    made.unshift(["LoadBalancer", loadBalancer.id]);
    compare("made", loadBalancer, first, report);
    if (!canModify) return;
    const second = settingsFor(endpoint, PORT + 1);
    compare("changed", await hcn.modifyLoadBalancer(loadBalancer.id, second), second, report);
  } finally {
    for (const [kind, id] of made) {
      await hcn.delete(kind, id).catch((error: unknown) => fault(`${kind} ${id} stays: ${messageOf(error)}`));
    }
    const left = [...(await hcn.ids("Endpoint")), ...(await hcn.ids("LoadBalancer"))].filter((id) =>
      made.some(([, own]) => own === id),
    );
    if (left.length === 0) print("cleaned up: nothing is left");
    else fault(`left: ${left.join(", ")}`);
  }
}

function compare(what: string, found: HcnLoadBalancer, sent: LoadBalancerSettings, { print, fault }: Report): void {
  if (isAsWanted(found, sent)) print(`load balancer ${what}: as it was sent`);
  else fault(`load balancer ${what}: sent ${loadBalancerText(sent)}, read back ${JSON.stringify(found)}`);
}

function settingsFor({ id }: HcnEndpoint, internalPort: number): LoadBalancerSettings {
  const mapping = { protocol: 6, internalPort, externalPort: PORT, distribution: 0, flags: 0 };
  return { endpoints: [id], sourceVip: undefined, frontendVip: VIP, mapping, flags: 0 };
}

/** The same calls, but records their times and the first document of each kind. */
function watched(
  calls: HcnCalls,
  nowMs: () => number,
  times: Map<string, number[]>,
  raw: Map<string, string>,
): HcnCalls {
  return new Proxy(calls, {
    get(target, name): unknown {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        const [kind] = args;
        const call = ["enumerate", "open", "query", "close", "delete"].includes(String(name))
          ? `${String(name)} ${String(kind)}`
          : String(name);
        const sinceMs = nowMs();
        try {
          const result: unknown = await Reflect.apply(member, target, args);
          if (name === "query" && !raw.has(String(kind))) raw.set(String(kind), String(result));
          return result;
        } finally {
          times.set(call, [...(times.get(call) ?? []), nowMs() - sinceMs]);
        }
      };
    },
  });
}
