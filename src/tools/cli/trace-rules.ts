/** The sources of rules for `kube-proxy trace`: a plan for manifests, dumps, or this node's kernel. */
import { runAtOnce } from "../../async/turns.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import {
  type ClientKind,
  type ClientPlace,
  clientPlace,
  OUTSIDE,
  podInterface,
} from "../../contract/inspect/client-place.ts";
import { type OfflineNode, offlineNode } from "../../contract/inspect/offline-node.ts";
import type { ClusterRecords } from "../../model/objects.ts";
import { MODES } from "../../modes/registry.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { hasAllAddresses } from "../../trace/dump/device-addresses.ts";
import { gapsIn, iptablesHint, lacksVirtualServers, UNKNOWN_SERVERS } from "../../trace/dump/gaps.ts";
import { type Dump, DumpError, type DumpReader, recogniseDumps } from "../../trace/dump/recognise.ts";
import type { KnownRoute, KnownServices } from "../../trace/facts.ts";
import { loopbackNotes } from "../explain/loopback.ts";
import { partForPacket } from "../explain/packet-part.ts";
import { FEW_SERVICES, isPodOf, NoRulesError, plannedRules } from "../explain/planned-rules.ts";
import { type DumpFile, dumpText } from "./dump-folder.ts";
import { UsageError } from "./output.ts";
import type { ParsedTarget, PodPlace } from "./trace-packet.ts";

/** Rules, and what their source says about the node. */
export interface TracedRules {
  /** The source in words. */
  readonly name: string;
  readonly notes: readonly string[];
  readonly dumps: readonly Dump[];
  readonly addresses: readonly IpAddress[];
  /** Whether `addresses` is complete. */
  readonly knowsAddresses: boolean;
  /** Whether the dumps include what packets have left in sets and lists. */
  readonly knowsClients: boolean;
  /** Longest prefix first. @default not known */
  readonly routes?: readonly KnownRoute[];
  /** @default not known */
  readonly services?: KnownServices;
  placeOf(position: ClientKind): ClientPlace;
  /**
   * The pod of this node with this address; undefined if there is none, or if that is not known.
   * @param podNode the node of the client pod. @default not known
   */
  podAt?(address: IpAddress, podNode: string | undefined): PodPlace | undefined;
}

/** The destination of the packet for which rules are planned. */
interface PlannedTarget extends ParsedTarget {
  /** Also shows rules that do not match. @default false */
  readonly showsEveryRule?: boolean;
}

/** The rules that a mode plans for the objects of a cluster, as far as the packet can meet them. @throws UsageError */
export async function rulesForObjects(
  cluster: ClusterRecords,
  config: KubeProxyConfig,
  { family, address, port, protocol, showsEveryRule = false }: PlannedTarget,
  warn: (message: string) => void,
): Promise<TracedRules> {
  const whole = offlineNode(cluster, config, family, warn);
  const isInPart = port !== undefined && whole.state.services.size > FEW_SERVICES;
  const node = isInPart ? runAtOnce(partForPacket(whole, { destination: address, port, showsEveryRule })) : whole;
  const addresses = node.hostAddresses;
  const podCIDRs = podCIDRsOf(cluster.nodes, node);
  const rules = await plannedRules(node, config).catch(refuseUnplanned);
  return {
    ...rules,
    notes: [
      `addresses of the node are taken to be ${addresses.join(", ") || "none but loopback"}`,
      ...(await loopbackNotes(node, config, { address, port, protocol })),
    ],
    knowsAddresses: true,
    knowsClients: false,
    placeOf: (position) => placeInManifests(position, node, podCIDRs),
    podAt(address, podNode) {
      const isHere = podNode === undefined ? isPodOf(node, podCIDRs, address) : podNode === node.name;
      return isHere && !addresses.includes(address) ? { inInterface: podInterface(node) } : undefined;
    },
  };
}

/** @throws UsageError where a mode has no rules to walk, and any other error as it is. */
export function refuseUnplanned(error: unknown): never {
  throw error instanceof NoRulesError ? new UsageError(error.message) : error;
}

function podCIDRsOf(
  nodes: readonly { readonly name: string; readonly podCIDRs: readonly string[] }[],
  node: OfflineNode,
) {
  return nodes.find(({ name }) => name === node.name)?.podCIDRs ?? [];
}

/** Where the kinds of clients are if objects are known besides the rules. @throws UsageError if that is not enough */
export function placesOn(cluster: ClusterRecords, config: KubeProxyConfig, family: IpFamily): TracedRules["placeOf"] {
  const node = offlineNode(cluster, config, family, () => {});
  return (position) => placeInManifests(position, node, podCIDRsOf(cluster.nodes, node));
}

function placeInManifests(position: ClientKind, node: OfflineNode, podCIDRs: readonly string[]): ClientPlace {
  const place = clientPlace(position, node, podCIDRs);
  if (place !== undefined) return place;
  throw new UsageError("--from pod: the Node has no podCIDR of this family; give a pod's address, and --in INTERFACE");
}

/** Reads rules from files. @throws UsageError */
export async function dumpedRules(
  files: readonly DumpFile[],
  local: readonly IpAddress[],
  family: IpFamily,
  input: NodeJS.ReadableStream,
): Promise<TracedRules> {
  const notes: string[] = [];
  const dumps: Dump[] = [];
  for (const file of files) {
    const found = await readDumps(file.path, file.name, input);
    const other = found.find((dump) => dump.kind === "iptables" && (dump.family ?? family) !== family);
    const own = found.filter((dump) => dump.kind !== "iptables" || (dump.family ?? family) === family);
    if (other?.kind === "iptables") {
      notes.push(`${own.length === 0 ? file.name : `a part of ${file.name}`} is of ${other.family}: it is left out`);
    }
    dumps.push(...own);
  }
  const gaps = gapsIn(dumps);
  notes.push(...gaps, ...iptablesHint(dumps));
  const isOfServers = lacksVirtualServers(dumps);
  if (isOfServers) dumps.push(UNKNOWN_SERVERS);
  if (dumps.length === 0) throw new UsageError(`no dump is of ${family}, which --to asks about`);
  if (local.length === 0 && !hasAllAddresses(dumps))
    notes.push("only the node's loopback addresses are known: give the others with --local");
  return {
    name: `${files.map(({ name }) => name).join(", ")}${gaps.length > 0 ? ", and some are missing" : ""}`,
    notes,
    dumps,
    addresses: local,
    // Virtual servers have addresses of their own.
    knowsAddresses: hasAllAddresses(dumps) || (local.length > 0 && !isOfServers),
    knowsClients: true,
    placeOf: (position) => placeInDump(position, local, family),
  };
}

/** The readers of dumps of all modes. */
export async function dumpReaders(): Promise<readonly DumpReader[]> {
  const readers = await Promise.all(MODES.map(({ loadDumpReader }) => loadDumpReader?.()));
  return readers.filter((reader) => reader !== undefined);
}

/** The dumps in a file. @throws UsageError */
export async function readDumps(path: string, name: string, input: NodeJS.ReadableStream): Promise<Dump[]> {
  return dumpsIn(await dumpText(path, name, input), name, await dumpReaders());
}

/** The dumps in a text. @param isPassedOver what is wrong with a text without any. @default never @throws UsageError */
export function dumpsIn(
  text: string,
  name: string,
  readers: readonly DumpReader[],
  isPassedOver: (error: DumpError) => boolean = () => false,
): Dump[] {
  try {
    return recogniseDumps(text, name, readers);
  } catch (error) {
    if (error instanceof DumpError && isPassedOver(error)) return [];
    if (error instanceof DumpError) throw new UsageError(error.message);
    throw new UsageError(`cannot read the dump ${name}: ${error instanceof Error ? error.message : error}`);
  }
}

/** An address of `--local`. @throws UsageError */
export function localAddress(text: string): IpAddress {
  const address = parseIpAddress(text);
  if (address === undefined) throw new UsageError(`--local must be an IP address, got "${text}"`);
  return address;
}

/** Where the kinds of clients are if only rules are known. @throws UsageError if that is not enough */
export function placeInDump(position: ClientKind, local: readonly IpAddress[], family: IpFamily): ClientPlace {
  if (position === "outside") return { address: OUTSIDE[family] as IpAddress, inInterface: undefined }; // canonical literals
  const own = local.find((address) => familyOf(address) === family);
  if (position === "node" && own !== undefined) return { address: own, inInterface: "" };
  if (position === "node") throw new UsageError("--from node: give an address of the node with --local");
  throw new UsageError("--from pod: rules do not say where pods are; give a pod's address, and --in INTERFACE");
}
