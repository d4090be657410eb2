/** Requests and replies of the helper threads (backend.ts, prober.ts). */
import type { Protocol } from "../../src/net/protocol.ts";

/** A socket that a backend listens on. */
export interface ListenSpec {
  readonly protocol: Protocol;
  readonly port: number;
  /** @default all its addresses */
  readonly address?: string;
  /** The pod that answers there. @default the backend's own pod */
  readonly pod?: string;
}

/** To the thread of all backends: make this backend listen on exactly these sockets, closing others. */
export interface BackendRequest {
  readonly id: number;
  /** Which backend. */
  readonly backend: number;
  readonly pod: string;
  /** The file that stands for its namespace. */
  readonly namespace: string;
  /** Also ends its connections. */
  readonly hasEnded: boolean;
  readonly listen: readonly ListenSpec[];
}

/** From a backend. `failed` names the sockets that could not be opened. */
export interface BackendReply {
  readonly id: number;
  readonly listening: number;
  readonly failed: readonly string[];
}

/** Body of a backend's every answer, over TCP and SCTP (as an HTTP body) and UDP (as the datagram). */
export interface BackendAnswer {
  readonly pod: string;
  /** The source address that the backend saw, in canonical text. */
  readonly peer: string;
}

/** To a prober: send `count` requests, each on a new socket. */
export interface ConnectRequest {
  readonly id: number;
  readonly kind: "connect";
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
  /** Default 1. */
  readonly count?: number;
  /** One after the other instead of all at once, up to the first failure; session affinity needs it. */
  readonly sequential?: boolean;
  readonly timeoutMs: number;
  /** UDP only: send from this port, so that repeated requests are one flow to the kernel. */
  readonly sourcePort?: number;
}

/** To a prober: fetch this URL. */
export interface FetchRequest {
  readonly id: number;
  readonly kind: "fetch";
  readonly url: string;
  readonly timeoutMs: number;
}

export type ProbeRequest = ConnectRequest | FetchRequest;

/**
 * Why no backend answered: an active refusal (RST or ICMP), a connection that was accepted and closed without an
 * answer, silence, or anything else.
 */
export type ProbeFailure = "refused" | "closed" | "timeout" | "other";

export type ProbeAnswer =
  | ({ readonly ok: true } & BackendAnswer)
  | { readonly ok: false; readonly error: ProbeFailure; readonly detail: string };

export interface ConnectReply {
  readonly id: number;
  readonly kind: "connect";
  readonly answers: readonly ProbeAnswer[];
}

export interface FetchReply {
  readonly id: number;
  readonly kind: "fetch";
  /** HTTP status; 0 if there was no HTTP answer, and `body` says why. */
  readonly status: number;
  readonly body: string;
}

export type ProbeReply = ConnectReply | FetchReply;

/** `::ffff:10.0.0.1` as a dual-stack socket reports it → `10.0.0.1`. */
export function plainAddress(address: string): string {
  return address.startsWith("::ffff:") && address.includes(".") ? address.slice(7) : address;
}
