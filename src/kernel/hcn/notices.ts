/**
 * What HNS tells on its own, without being asked. It tells of networks and of pods that get or lose their endpoint, and when it stops;
 * not of load balancers or endpoints that are deleted. Upstream does not use it. Reference windows-hcn.md §4.1.
 */

/** `other`: all that is of no use here. */
export type HnsNoticeKind =
  | "network-created"
  | "network-deleted"
  | "endpoint-attached"
  | "endpoint-detached"
  /** HNS stops or is restarted: nothing else is told after that, and who wants to hear more must register again. */
  | "service-gone"
  | "other";

/** `HCN_NOTIFICATIONS`. */
const KINDS: ReadonlyMap<number, HnsNoticeKind> = new Map([
  [0x02, "network-created"],
  [0x04, "network-deleted"],
  [0x09, "endpoint-attached"],
  [0x10, "endpoint-detached"],
  [0x0100_0000, "service-gone"],
]);

/** The number by which HNS tells of its own end. */
export const SERVICE_DISCONNECT = 0x0100_0000;

export function noticeKind(type: number): HnsNoticeKind {
  return KINDS.get(type >>> 0) ?? "other";
}
