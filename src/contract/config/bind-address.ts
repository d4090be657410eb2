/** `IP:port` texts of the health and metrics servers. Reference configuration.md §3.2, §3.5. */
import { joinHostPort, parseIpAddress, toPort } from "../../net/ip.ts";

/**
 * Splits `host:port` or `[host]:port` at its last colon.
 *
 * @returns the two parts unchecked, or `undefined` when the text does not have that shape.
 */
export function splitHostPort(text: string): { readonly host: string; readonly port: string } | undefined {
  const match = /^(?:\[([^[\]]*)\]|([^[\]:]*)):([^[\]:]*)$/.exec(text);
  return match === null ? undefined : { host: match[1] ?? match[2] ?? "", port: match[3] ?? "" };
}

/** Adds the port to an address that has none; returns any other text unchanged, even an invalid one. */
export function appendPortIfNeeded(address: string, port: number): string {
  if (parseIpAddress(address) === undefined || toPort(port) === undefined) return address;
  // Keeps the user's spelling, which the written configuration shows again.
  return joinHostPort(address, port);
}
