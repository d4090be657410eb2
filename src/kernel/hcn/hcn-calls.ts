/**
 * The functions of `computenetwork.dll` that a proxy needs, and `HNSCall` of `vmcompute.dll`: texts in, texts out. Two
 * implementations, the libraries (`computenetwork.ts`) and memory (`testkit/fakes/hcn`), pass one contract test; under Wine the
 * libraries are ours, too. Reference windows-hcn.md §4.1.
 */
import type { Guid } from "./guid.ts";

/** As in the names of the functions. */
export type HcnKind = "Network" | "Endpoint" | "LoadBalancer";

/** What HNS tells on its own (`HCN_NOTIFICATIONS`); of other numbers nothing is known here. */
export const HNS_NOTICES = {
  networkCreated: 0x02,
  networkDeleted: 0x04,
  /** A pod gets its endpoint, or loses it. */
  endpointAttached: 0x09,
  endpointDetached: 0x10,
  /** HNS stops or is restarted: nothing else is told after that, and who wants to hear more must register again. */
  serviceGone: 0x0100_0000,
} as const;

/** An open object; must be closed. */
export type HcnHandle = bigint;

/** Every method rejects with an {@link HcnError} when HCN does not do it. No two calls may be under way at once. */
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
  /** The first version of the interface, for what HCN cannot be asked. @returns a JSON document. */
  hnsCall(method: string, path: string, body: string): Promise<string>;
  /**
   * Calls `onNotice` with what HNS tells on its own, a number of `HCN_NOTIFICATIONS`, until the returned function is called, which must
   * be; after HNS's end nothing comes.
   */
  watch(onNotice: (type: number) => void): Promise<() => Promise<void>>;
}
