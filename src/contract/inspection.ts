/**
 * A mode's answers for `kube-proxy explain` and `kube-proxy diff`: what a service port owns in the kernel, and who owns
 * a name. Loaded with {@link ModeDescriptor.loadInspection}; by the daemon only if it counts connections.
 */

import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { ServicePortName } from "../model/service-port-name.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import type { KubeProxyConfig } from "./config/config.ts";
import type { Ownership } from "./inspect/dumps/compare.ts";
import type { DumpKind } from "./inspect/dumps/inventory.ts";
import type { OfflineNode } from "./inspect/offline-node.ts";
import type { ModeWords } from "./mode-words.ts";
import type { ModeCounters } from "./traffic.ts";

/** One object in the kernel that belongs to a service port. */
export interface KernelPart {
  readonly kind:
    | "chain"
    | "rule"
    | "set"
    | "element"
    | "virtual server"
    | "ipset entry"
    | "address"
    | "socket"
    | "load balancer";
  /** As the tool prints it: the name of a chain or set, the text of a rule, element or entry. */
  readonly name: string;
  /** What contains it: `nat`, `table ip kube-proxy map service-ips`, `KUBE-CLUSTER-IP`. */
  readonly where: string;
  /** What it is for, in words. */
  readonly purpose: string;
  /** The endpoint that it leads to, as {@link Endpoint.text}. */
  readonly endpoint?: string;
}

/** A name in the kernel that belongs to one service port only. */
export interface OwnName {
  readonly name: string;
  readonly purpose: string;
  readonly endpoint?: string;
}

/** @param endpoints their {@link Endpoint.text}; called only if the name depends on them. */
type OwnerTest = (port: ServicePortName, endpoints: () => Iterable<string>) => boolean;

/** Makes parts of the chains and sets of one service port. @param names from {@link ModeInspection.namesOf} */
export function namedParts(names: Iterable<OwnName>, where: string) {
  const known = new Map(Array.from(names, (own) => [own.name, own]));
  return (kind: "chain" | "set", name: string): KernelPart => {
    const { purpose = "", endpoint } = known.get(name) ?? {};
    return { kind, name, where, purpose, ...(endpoint !== undefined && { endpoint }) };
  };
}

/** Describes a mode's kernel objects for people. */
export interface ModeInspection {
  readonly words: ModeWords;
  /** What the mode does to a service port that its owner may not expect, in sentences. @default nothing */
  warnings?(node: OfflineNode, port: ServicePort): readonly string[];
  /** How one of several endpoints is chosen, as words after "chosen": `at random`. */
  choice(config: KubeProxyConfig, isWeighted: boolean): string;
  /** All kernel objects of one service port of the node, in a fixed order. @param endpoints all its endpoints */
  partsOf(
    node: OfflineNode,
    config: KubeProxyConfig,
    port: ServicePort,
    endpoints: readonly Endpoint[],
  ): readonly KernelPart[];
  /** Names that a service port has or may get, under any policy. Cheap: it is called for every service port. */
  namesOf(port: ServicePort, endpoints: readonly Endpoint[]): Iterable<OwnName>;
  /**
   * Tests by the names of service ports and endpoints which of them may own a name, so that one name among 10,000
   * Services is found without building the model of all. It must accept every name of {@link namesOf}. @returns
   * undefined for a name that no service port has.
   */
  ownerTest(name: string): OwnerTest | undefined;
  /** The purpose of a name that all service ports share; undefined for other names. */
  sharedPurpose(name: string, family: IpFamily): string | undefined;
  /** Loads the mode's counters in the kernel. @param config where the mode keeps them. @default the usual places */
  loadCounters(config?: { readonly ebpf: { readonly pinFolder: string } }): Promise<ModeCounters>;
  /** Loads the inspection of redirected sockets; undefined in modes that redirect none. */
  loadSockets?(): Promise<SocketInspection>;
  /** How the mode's kernel objects are compared; undefined if they cannot be. */
  readonly comparison?: ModeComparison;
}

/** How `kube-proxy diff` compares the wanted state with the output of tools. */
interface ModeComparison {
  /** The tools that print the mode's kernel objects, and the form of `render` that prints the wanted ones likewise. */
  readonly dumps: readonly { readonly kind: DumpKind; readonly form: string }[];
  /** The name of the mode's nftables tables, if it has any. */
  readonly nftTable?: string;
  /** @param families the compared families: objects of others do not count as extra. */
  ownership(families: readonly IpFamily[], config: KubeProxyConfig): Ownership;
}

/** What happens to sockets of this node that connect to an address, before any rules. */
export interface LedSocket {
  /** The clients whose sockets are redirected; others pass the rules. */
  readonly clients: "all" | "host" | "none";
  /** Whether connections are refused, because there are no endpoints. */
  readonly isRefused: boolean;
  /** `10.180.0.12:8080`, sorted. */
  readonly endpoints: readonly string[];
  /** The session affinity timeout; 0: no affinity. */
  readonly affinitySeconds: number;
}

export interface WantedSocket extends LedSocket {
  /** `namespace/name:port`. */
  readonly servicePort: string;
}

/** By address: `TCP 10.96.0.31:80`, and `TCP *:30082` for a node port. */
export type LiveSockets =
  | {
      readonly ok: true;
      readonly sockets: ReadonlyMap<string, LedSocket>;
      /** The host's addresses: connections to these pass the rules. */
      readonly own: ReadonlySet<IpAddress>;
      /** The node's addresses at which node ports answer. */
      readonly answering: readonly IpAddress[];
      /** How many pods' network namespaces are redirected, beside the host's. */
      readonly ledPods: number;
      /** Addresses of the network namespaces that can be seen, and whether their sockets are redirected. */
      readonly pods: ReadonlyMap<IpAddress, boolean>;
    }
  /** The reason in words. */
  | { readonly ok: false; readonly reason: string };

/** Where sockets of this node are redirected, and where they should be. */
export interface SocketInspection {
  /** The kernel's current state. Never throws. */
  live(family: IpFamily, config: KubeProxyConfig): Promise<LiveSockets>;
  /** @param own the host's addresses. */
  wanted(node: OfflineNode, config: KubeProxyConfig, own: ReadonlySet<IpAddress>): ReadonlyMap<string, WantedSocket>;
  /** The result of {@link live} as a chain for `trace`, and for `prove` without the pods: with the sockets of any that is redirected. */
  chain(
    live: Omit<Extract<LiveSockets, { ok: true }>, "pods"> & { readonly pods?: ReadonlyMap<IpAddress, boolean> },
  ): Dump;
}
