/**
 * What `kube-proxy explain` and `kube-proxy diff` ask a mode: what a service port owns in the kernel, and whose a name is.
 * Loaded with {@link ModeDescriptor.loadInspection}; by the daemon only where it is to count connections.
 */
import type { KubeProxyConfig } from "../config/config.ts";
import type { Ownership } from "../inspect/dumps/compare.ts";
import type { DumpKind } from "../inspect/dumps/inventory.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { ServicePortName } from "../model/service-port-name.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import type { ModeWords } from "./mode-words.ts";
import type { ModeCounters } from "./traffic.ts";

/** One thing in the kernel that is there for a service port. */
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
  /** What it is in: `nat`, `table ip kube-proxy map service-ips`, `KUBE-CLUSTER-IP`. */
  readonly where: string;
  /** What it is for, in words. */
  readonly purpose: string;
  /** The endpoint that it leads to, as {@link Endpoint.text}. */
  readonly endpoint?: string;
}

/** A name in the kernel that belongs to a service port alone. */
export interface OwnName {
  readonly name: string;
  readonly purpose: string;
  readonly endpoint?: string;
}

/** @param endpoints their {@link Endpoint.text}; asked for only where the name needs them. */
type OwnerTest = (port: ServicePortName, endpoints: () => Iterable<string>) => boolean;

/** Chains and sets of one service port as parts, with what they are for. @param names as {@link ModeInspection.namesOf} gives them */
export function namedParts(names: Iterable<OwnName>, where: string) {
  const known = new Map(Array.from(names, (own) => [own.name, own]));
  return (kind: "chain" | "set", name: string): KernelPart => {
    const { purpose = "", endpoint } = known.get(name) ?? {};
    return { kind, name, where, purpose, ...(endpoint !== undefined && { endpoint }) };
  };
}

/** A mode, seen by people who look at the kernel. */
export interface ModeInspection {
  readonly words: ModeWords;
  /** How an endpoint is chosen among several, to follow "chosen": `at random`. */
  choice(config: KubeProxyConfig): string;
  /** All that is in the kernel for one service port of the node, in a fixed order. @param endpoints all that it has */
  partsOf(
    node: OfflineNode,
    config: KubeProxyConfig,
    port: ServicePort,
    endpoints: readonly Endpoint[],
  ): readonly KernelPart[];
  /** Names that a service port has or may get, under any policy. Cheap: it is asked of every service port. */
  namesOf(port: ServicePort, endpoints: readonly Endpoint[]): Iterable<OwnName>;
  /**
   * Tells by the names of service ports and endpoints whose a name may be, so that one name among 10,000 services is found before
   * the model is made of all of them. @returns undefined for a name that no service port has. It must say yes to every name of
   * {@link namesOf}.
   */
  ownerTest(name: string): OwnerTest | undefined;
  /** What a name is for that exists once for all service ports; undefined for other names. */
  sharedPurpose(name: string, family: IpFamily): string | undefined;
  /** What the mode's part of the kernel counts. @param config says where it keeps them. @default the usual places */
  loadCounters(config?: { readonly ebpf: { readonly pinFolder: string } }): Promise<ModeCounters>;
  /** Where sockets of this node are led; undefined in modes that lead none. */
  loadSockets?(): Promise<SocketInspection>;
  /** How the mode's part of the kernel is compared; undefined where it cannot be. */
  readonly comparison?: ModeComparison;
}

/** How `kube-proxy diff` compares what is wanted with what tools print. */
interface ModeComparison {
  /** What prints the mode's part of the kernel, and the form of `render` that is the same for what is wanted. */
  readonly dumps: readonly { readonly kind: DumpKind; readonly form: string }[];
  /** The name of the mode's nftables tables, if it has any. */
  readonly nftTable?: string;
  /** @param families that are compared: things of others are not extra. */
  ownership(families: readonly IpFamily[], config: KubeProxyConfig): Ownership;
}

/** What a socket of this node meets at an address, where it does not take the rules. */
export interface LedSocket {
  /** Clients whose sockets are led; those of others take the rules. */
  readonly clients: "all" | "host" | "none";
  /** There are no endpoints. */
  readonly isRefused: boolean;
  /** `10.180.0.12:8080`, sorted. */
  readonly endpoints: readonly string[];
  /** How long a client's endpoint is remembered; 0: it is not. */
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
      /** The host's addresses: at these, sockets take the rules. */
      readonly own: ReadonlySet<IpAddress>;
      /** Those of the node at which node ports answer. */
      readonly answering: readonly IpAddress[];
    }
  /** In words. */
  | { readonly ok: false; readonly reason: string };

/** Where sockets of this node are led, and where they should be. */
export interface SocketInspection {
  /** As the kernel has it now. Never throws. */
  live(family: IpFamily, config: KubeProxyConfig): Promise<LiveSockets>;
  /** @param own the host's addresses. */
  wanted(node: OfflineNode, config: KubeProxyConfig, own: ReadonlySet<IpAddress>): ReadonlyMap<string, WantedSocket>;
  /** What {@link live} has read, for `trace`. */
  chain(live: Extract<LiveSockets, { ok: true }>): Dump;
}
