/**
 * Where sockets of this node are redirected, according to the pinned maps and according to the plan. Reads like a
 * program and changes nothing, so it can run beside the process that writes the maps.
 */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { LedSocket, LiveSockets, SocketInspection, WantedSocket } from "../../contract/inspection.ts";
import type { BpfPins } from "../../kernel/bpf/bpf.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { type OtherNamespace, otherNamespaces } from "../../kernel/linked-namespaces.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { messageOf } from "../../logging/message-of.ts";
import { type IpAddress, type IpFamily, ipFromBytes, joinHostPort, unspecifiedAddress } from "../../net/ip.ts";
import { protocolOfNumber } from "../../net/protocol.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import { LOCALHOST } from "../nftables/localhost-relay.ts";
import { destinationsOf, LISTS } from "./installed.ts";
import { pinFolderOf } from "./node-pins.ts";
import { closeAll, memoryOf } from "./open-maps.ts";
import { leadsLocalhost } from "./packet-path.ts";
import { ledIn } from "./pod-namespaces.ts";
import { EndpointLists } from "./socket-balancer/endpoint-lists.ts";
import { FRONTEND_KEY, frontendWords, HOST_ONLY, NO_ENDPOINTS } from "./socket-balancer/maps.ts";
import { socketChain } from "./socket-chain.ts";
import { SocketPins } from "./socket-pins.ts";
import { PASS_ALL, planSocket, type SocketPlan, type Treatment, treatmentOf } from "./socket-plan.ts";

/** The parts of a node that determine the wanted frontends. */
type SocketNode = Pick<OfflineNode, "name" | "zone"> & {
  readonly state: Pick<OfflineNode["state"], "services" | "endpoints">;
};

interface KnownNode {
  readonly own: ReadonlySet<IpAddress>;
  readonly nowNs: bigint;
  /** Other network namespaces, as far as they can be seen. */
  readonly others?: readonly Pick<OtherNamespace, "cookie" | "devices">[];
}

/** What a family's pinned maps currently decide. @param root folder of the network namespace. */
export function decidedBy(
  pins: BpfPins,
  root: string,
  family: IpFamily,
  { own, nowNs, others = [] }: KnownNode,
): LiveSockets {
  const folder = `${root}/${family}`;
  const socketPins = new SocketPins(pins, root, family);
  const maps = socketPins.findMaps();
  const { leading, memory } = maps;
  try {
    if (leading === undefined || memory === undefined) {
      return { ok: false, reason: `the maps in ${folder} are incomplete or of another version` };
    }
    if (nowNs > (memory.validUntil.words()[0] ?? 0n)) {
      const reason = `no process updates the maps in ${folder} any more (ebpf.validFor): all connections take the rules`;
      return { ok: false, reason };
    }
    if (socketPins.areDetached())
      return { ok: false, reason: `no program in ${folder} is attached: all connections take the rules` };
    const lists = new EndpointLists(family, memoryOf(leading), () => 0);
    const sockets = new Map<string, LedSocket>();
    for (const [key, value] of leading.frontends.entries()) {
      const { flags, affinitySeconds, ...list } = frontendWords(value);
      const known = flags & (NO_ENDPOINTS | HOST_ONLY);
      const endpoints = lists.read(list).map(({ ip, port }) => joinHostPort(ip, port));
      const place = placeOfKey(key, family);
      const isRefused = (known & NO_ENDPOINTS) !== 0;
      sockets.set(place, {
        clients: known !== flags || passes(place, isRefused) ? "none" : (known & HOST_ONLY) === 0 ? "all" : "host",
        isRefused,
        endpoints: endpoints.sort(),
        affinitySeconds,
      });
    }
    const led = ledIn(memory);
    const pods = others.flatMap(({ cookie, devices }) =>
      devices.flatMap(({ addresses }) => addresses.map((address) => [address, led.has(cookie)] as const)),
    );
    const answering = memory.nodeAddresses.entries().map(([key]) => ipFromBytes(key));
    return { ok: true, sockets, answering, own, ledPods: led.size, pods: new Map(pods) };
  } finally {
    for (const some of Object.values(maps)) closeAll(some ?? {});
  }
}

/**
 * Where sockets should be redirected, and which frontends are known to use the rules.
 * @param own the host's addresses, at which the rules decide even if a Service has them.
 */
export function wantedSockets(
  { state, name, zone }: SocketNode,
  { masqueradeAll }: Pick<KubeProxyConfig, "masqueradeAll">,
  own: ReadonlySet<IpAddress>,
): ReadonlyMap<string, WantedSocket> {
  const wanted = new Map<string, WantedSocket>();
  if (masqueradeAll) return wanted;
  const facts = { nodeName: name, zone };
  for (const [key, port] of state.services) {
    const plan = planSocket(port, state.endpoints.get(key) ?? [], facts);
    if (plan === PASS_ALL) continue;
    for (const frontend of destinationsOf(port)) {
      const treatment = treatmentOf(plan.treatments, frontend, own);
      if (treatment === "pass") continue;
      const isRefused = treatment === "refuse";
      const isLeft = treatment === "leave";
      const place = `${port.protocol} ${placeText(frontend.address, frontend.port)}`;
      wanted.set(place, {
        servicePort: port.name.text,
        clients: isLeft || passes(place, isRefused) ? "none" : treatment === "cluster-for-host" ? "host" : "all",
        isRefused,
        endpoints: endpointsFor(treatment, plan).toSorted(),
        affinitySeconds: port.sessionAffinity === "ClientIP" ? port.stickyMaxAgeSeconds : 0,
      });
    }
  }
  return wanted;
}

/** With `ebpf.hostNamespaceOnly`, programs redirect the host only; the maps do not record that. */
function forClients<Socket extends LedSocket>(
  sockets: ReadonlyMap<string, Socket>,
  { ebpf }: Pick<KubeProxyConfig, "ebpf">,
): ReadonlyMap<string, Socket> {
  if (!ebpf.hostNamespaceOnly) return sockets;
  const forHost = (led: Socket): Socket => (led.clients === "all" ? { ...led, clients: "host" } : led);
  return new Map(Array.from(sockets, ([place, led]) => [place, forHost(led)]));
}

function endpointsFor(treatment: Treatment, plan: SocketPlan): readonly string[] {
  const list = LISTS[treatment];
  return list === "nothing" ? [] : plan[list].map(({ ip, port }) => joinHostPort(ip, port));
}

/** Programs never reject datagrams. */
const passes = (place: string, isRefused: boolean): boolean => isRefused && place.startsWith("UDP ");

export const placeText = (address: IpAddress | undefined, port: number): string =>
  address === undefined ? `*:${port}` : joinHostPort(address, port);

/** The key of a node port has no address. */
function placeOfKey(key: Uint8Array, family: IpFamily): string {
  const { address: place, port, protocol } = FRONTEND_KEY[family].fields;
  const address = ipFromBytes(Uint8Array.from(key.subarray(place.at, place.at + place.bytes)));
  const number = protocolOfNumber(key[protocol.at]) ?? `protocol ${key[protocol.at]}`;
  const at = Buffer.from(key).readUInt16BE(port.at);
  return `${number} ${placeText(address === unspecifiedAddress(family) ? undefined : address, at)}`;
}

async function live(family: IpFamily, config: KubeProxyConfig): Promise<LiveSockets> {
  try {
    const folder = pinFolderOf(config, ownNetnsCookie);
    if (folder === undefined) return { ok: false, reason: "ebpf.pinFolder is none, so no map has a name" };
    if (!folder.ok) return folder;
    const { pins } = kernelBpf();
    if (pins.list(`${folder.path}/${family}`) === undefined) {
      return { ok: false, reason: `nothing is pinned in ${folder.path}/${family}` };
    }
    const own = new Set(await localAddresses(family));
    const others = await otherNamespaces().catch(() => []);
    const live = decidedBy(pins, folder.path, family, { own, nowNs: process.hrtime.bigint(), others });
    return live.ok ? { ...live, sockets: forClients(live.sockets, config) } : live;
  } catch (error) {
    return { ok: false, reason: messageOf(error) };
  }
}

/** Where the plan redirects sockets, including localhost. */
export function plannedPlaces(node: OfflineNode, config: KubeProxyConfig): ReadonlyMap<string, WantedSocket> {
  const { family, hostAddresses, nodePortAddresses } = node;
  const sockets = new Map(wantedSockets(node, config, new Set(hostAddresses)));
  for (const [place, led] of leadsLocalhost(config, nodePortAddresses) ? [...sockets] : []) {
    const [, port] = /^TCP \*:(\d+)$/.exec(place) ?? [];
    if (port === undefined || led.clients !== "all" || led.isRefused) continue;
    sockets.set(`TCP ${joinHostPort(LOCALHOST[family], Number(port))}`, { ...led, clients: "host" });
  }
  return forClients(sockets, config);
}

/** The same for `trace`. */
export function plannedSockets(node: OfflineNode, config: KubeProxyConfig): Dump {
  const answering = node.nodePortIPs.kind === "all" ? node.hostAddresses : node.nodePortIPs.ips;
  return socketChain(plannedPlaces(node, config), answering, "sockets, as planned");
}

export const ebpfSockets: SocketInspection = {
  live,
  wanted: (node, config, own) => forClients(wantedSockets(node, config, own), config),
  chain: ({ sockets, answering, pods }) => socketChain(sockets, answering, "sockets, by the pinned maps", pods),
};
