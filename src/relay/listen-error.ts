/** Why a port could not be opened: a message, and a code for the caller to act upon. */
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { RelayProtocol } from "./relay.ts";

/** By code: each has its own remedy, such as another port, another address, more rights, fewer descriptors. */
const REASONS = {
  port_in_use: "the port is taken by another socket",
  address_not_local: "the address is not on this host",
  not_permitted: "no permission to use this port",
  out_of_descriptors: "out of file descriptors",
  unsupported: "the kernel has no support for this address family",
  unknown: "the system refused",
} as const;

export type ListenErrorCode = keyof typeof REASONS;

const CODES: Readonly<Record<string, ListenErrorCode>> = {
  EADDRINUSE: "port_in_use",
  EADDRNOTAVAIL: "address_not_local",
  EACCES: "not_permitted",
  EPERM: "not_permitted",
  EMFILE: "out_of_descriptors",
  ENFILE: "out_of_descriptors",
  EAFNOSUPPORT: "unsupported",
};

export interface ListenFacts {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  readonly port: number;
}

/** `127.0.0.1:80/TCP`. */
export function listenText({ protocol, address, port }: ListenFacts): string {
  return `${joinHostPort(address, port)}/${protocol}`;
}

/** A socket that could not be opened or bound; `code` says why. */
export class ListenError extends Error {
  override readonly name = "ListenError";
  readonly code: ListenErrorCode;
  readonly facts: ListenFacts;

  constructor(code: ListenErrorCode, facts: ListenFacts, options?: ErrorOptions) {
    super(`cannot listen on ${listenText(facts)}: ${REASONS[code]}`, options);
    this.code = code;
    this.facts = facts;
  }
}

/** Wraps the error of a system call. @param errno its name, such as `EADDRINUSE`. */
export function listenError(errno: string | undefined, facts: ListenFacts, cause: unknown): ListenError {
  return new ListenError(CODES[errno ?? ""] ?? "unknown", facts, { cause });
}
