/**
 * The kernel's IP Virtual Server of one network namespace: virtual servers (an address, a protocol and a port) that
 * balance connections across real servers. Two implementations, generic netlink (`netlink-ipvs.ts`) and memory
 * (`memory-ipvs.ts`), pass the same contract test. This layer knows nothing about Services.
 */
import { type IpAddress, type IpFamily, joinHostPort } from "../../../net/ip.ts";
import type { Protocol } from "../../../net/protocol.ts";

/** IP_VS_SVC_F_PERSISTENT: all connections of a client go to one real server, until `timeoutSeconds` after the last. */
export const IPVS_SERVICE_PERSISTENT = 0x1;
/** IP_VS_SVC_F_HASHED: internal to the kernel; never in a {@link VirtualServer}. */
export const IPVS_SERVICE_HASHED = 0x2;
/** IP_VS_SVC_F_SCHED1: scheduler-specific (`sh-fallback`, `mh-fallback`). */
export const IPVS_SERVICE_SCHEDULER_FLAG_1 = 0x8;
/** IP_VS_SVC_F_SCHED2: scheduler-specific (`sh-port`, `mh-port`); reference ipvs.md §3 sets it for `mh`. */
export const IPVS_SERVICE_SCHEDULER_FLAG_2 = 0x10;

export interface VirtualServerKey {
  readonly address: IpAddress;
  readonly protocol: Protocol;
  readonly port: number;
}

export interface VirtualServer extends VirtualServerKey {
  /** A scheduler's name: `rr`, `wrr`, `lc`, … */
  readonly scheduler: string;
  /** `IPVS_SERVICE_*` bits, without {@link IPVS_SERVICE_HASHED}. */
  readonly flags: number;
  /** Persistence timeout; 0 without {@link IPVS_SERVICE_PERSISTENT}. */
  readonly timeoutSeconds: number;
}

/** Identifies a real server within its virtual server. */
export interface RealServerKey {
  readonly address: IpAddress;
  readonly port: number;
}

/** A real server. Forwarding is always masquerading (NAT), and thresholds are 0. */
export interface RealServer extends RealServerKey {
  /** With 0 it gets no new connections. */
  readonly weight: number;
}

/** A real server in the kernel, with its connections. */
export interface RealServerState extends RealServer {
  readonly activeConnections: number;
  readonly inactiveConnections: number;
  /** Connections since it was added. Absent before Linux 4.1. */
  readonly connections?: number;
}

/** One message to the kernel. */
export type IpvsOperation =
  | { readonly kind: "add-virtual-server"; readonly virtualServer: VirtualServer }
  | { readonly kind: "update-virtual-server"; readonly virtualServer: VirtualServer }
  /** Also deletes its real servers. */
  | { readonly kind: "delete-virtual-server"; readonly virtualServer: VirtualServerKey }
  | { readonly kind: "add-real-server"; readonly virtualServer: VirtualServerKey; readonly realServer: RealServer }
  | { readonly kind: "update-real-server"; readonly virtualServer: VirtualServerKey; readonly realServer: RealServer }
  | {
      readonly kind: "delete-real-server";
      readonly virtualServer: VirtualServerKey;
      readonly realServer: RealServerKey;
    };

/** An operation that the kernel rejected. */
export interface IpvsFailure {
  readonly operation: IpvsOperation;
  /** The errno's name: `EEXIST`, `ESRCH`, `ENOENT` (unknown scheduler), `EPERM`, … */
  readonly code: string;
  /** A sentence that names the operation, the virtual server and the cause. */
  readonly message: string;
}

/** The kernel has no IPVS (any more), so that every request fails. */
export class IpvsUnavailableError extends Error {
  override readonly name = "IpvsUnavailableError";
}

/** In seconds; 0 keeps the kernel's value. */
export interface IpvsTimeouts {
  readonly tcp: number;
  readonly tcpFin: number;
  readonly udp: number;
}

export interface Ipvs {
  /** All virtual servers of the family, except those of firewall marks. */
  virtualServers(family: IpFamily, signal?: AbortSignal): Promise<readonly VirtualServer[]>;
  /** One virtual server; `undefined` if it does not exist. */
  virtualServer(key: VirtualServerKey): Promise<VirtualServer | undefined>;
  /** Connections since it was added; `undefined` if it does not exist. The kernel updates its totals every two seconds. */
  connections(key: VirtualServerKey): Promise<number | undefined>;
  /** Its real servers in the kernel's order; `undefined` if there is no such virtual server. */
  realServers(key: VirtualServerKey, signal?: AbortSignal): Promise<readonly RealServerState[] | undefined>;
  /**
   * Carries out the operations in order, many per system call; each succeeds or fails alone (IPVS has no transactions).
   * Resolves to the rejected ones. Like every method, it throws only if the kernel cannot be reached: an
   * {@link IpvsUnavailableError} if IPVS is missing, a NetlinkError otherwise.
   */
  apply(operations: readonly IpvsOperation[], signal?: AbortSignal): Promise<readonly IpvsFailure[]>;
  /** Removes all virtual servers, of both families. */
  flush(): Promise<void>;
  timeouts(): Promise<IpvsTimeouts>;
  setTimeouts(timeouts: IpvsTimeouts): Promise<void>;
  close(): Promise<void>;
}

/** `10.0.0.1:80/TCP`, `[fd00::1]:80/TCP`: reference ipvs.md §3. */
export function virtualServerText({ address, port, protocol }: VirtualServerKey): string {
  return `${joinHostPort(address, port)}/${protocol}`;
}

/** Explains the errno of a failed operation (net/netfilter/ipvs/ip_vs_ctl.c). */
export function ipvsFailure(operation: IpvsOperation, code: string): IpvsFailure {
  const verb = operation.kind.replaceAll("-", " ");
  const server = virtualServerText(operation.virtualServer);
  const subject =
    "realServer" in operation
      ? `${joinHostPort(operation.realServer.address, operation.realServer.port)} of ${server}`
      : server;
  return { operation, code, message: `ipvs: cannot ${verb} ${subject}: ${causeOf(operation, code)}` };
}

function causeOf(operation: IpvsOperation, code: string): string {
  switch (code) {
    case "EEXIST":
      return "it exists already (EEXIST)";
    case "ESRCH":
      return "there is no such virtual server (ESRCH)";
    case "ENOENT":
      return "realServer" in operation
        ? "there is no such real server (ENOENT)"
        : `${missingScheduler(operation)} (ENOENT)`;
    case "EPERM":
      return "not permitted, this needs CAP_NET_ADMIN (EPERM)";
    case "EAFNOSUPPORT":
      return "the kernel's IPVS has no IPv6 (EAFNOSUPPORT)";
    case "EINVAL":
      return "realServer" in operation
        ? "the kernel accepts only local and unicast addresses of the virtual server's family (EINVAL)"
        : "the kernel calls it invalid (EINVAL)";
    default:
      return code;
  }
}

function missingScheduler({ virtualServer }: IpvsOperation): string {
  if (!("scheduler" in virtualServer)) return "the kernel has no such object";
  const { scheduler } = virtualServer;
  return `the kernel has no scheduler "${scheduler}": load the module ip_vs_${scheduler} or choose another`;
}
