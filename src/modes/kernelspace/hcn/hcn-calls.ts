/**
 * The functions of `computenetwork.dll` that a proxy needs, and `HNSCall` of `vmcompute.dll`: strings in, strings out. Two
 * implementations, the libraries (`computenetwork.ts`) and an in-memory fake (`testkit/fakes/hcn`), pass one contract test;
 * under Wine the libraries are fakes, too. Reference windows-hcn.md §4.1.
 */
import type { Guid } from "./guid.ts";

/** As in the names of the functions. */
export type HcnKind = "Network" | "Endpoint" | "LoadBalancer";

/** Notifications of HNS (`HCN_NOTIFICATIONS`); the meaning of other numbers is unknown. */
export const HNS_NOTICES = {
  networkCreated: 0x02,
  networkDeleted: 0x04,
  /** The endpoint of a pod was attached or detached. */
  endpointAttached: 0x09,
  endpointDetached: 0x10,
  /** HNS stops or restarts: no notification follows until the program registers again. */
  serviceGone: 0x0100_0000,
} as const;

/** An open object; must be closed. */
export type HcnHandle = bigint;

/** Every method rejects with an {@link HcnError} if the call fails. Only one call may be in progress at a time. */
export interface HcnCalls {
  /** @param query a JSON document. @returns a JSON array of IDs. */
  enumerate(kind: HcnKind, query: string): Promise<string>;
  open(kind: HcnKind, id: Guid): Promise<HcnHandle>;
  /** @returns the properties of an open object, a JSON document. */
  query(kind: HcnKind, handle: HcnHandle, query: string): Promise<string>;
  close(kind: HcnKind, handle: HcnHandle): Promise<void>;
  /** HNS chooses the ID. @returns the open object. */
  createEndpoint(network: HcnHandle, settings: string): Promise<HcnHandle>;
  /** HNS chooses the ID. @returns the open object. */
  createLoadBalancer(settings: string): Promise<HcnHandle>;
  /** @param settings the whole document. */
  modifyLoadBalancer(handle: HcnHandle, settings: string): Promise<void>;
  delete(kind: HcnKind, id: Guid): Promise<void>;
  /** The first version of the API, for what HCN does not offer. @returns a JSON document. */
  hnsCall(method: string, path: string, body: string): Promise<string>;
  /**
   * Calls `onNotice` with each notification of HNS, a number of `HCN_NOTIFICATIONS`, until the returned function is called. It must be
   * called in every case. No notification comes after HNS has stopped.
   */
  watch(onNotice: (type: number) => void): Promise<() => Promise<void>>;
}
