/** `IP:port` texts of the health and metrics servers. Pure. Reference configuration.md §3.2, §3.5. */
import { joinHostPort, parseIpAddress, toPort } from "../net/ip.ts";

/**
 * Splits `host:port` or `[host]:port` at its last colon. Pure.
 *
 * @returns the two parts unchecked, or `undefined` when the text does not have that shape.
 */
export function splitHostPort(text: string): { readonly host: string; readonly port: string } | undefined {
  const match = /^(?:\[([^[\]]*)\]|([^[\]:]*)):([^[\]:]*)$/.exec(text);
  return match === null ? undefined : { host: match[1] ?? match[2] ?? "", port: match[3] ?? "" };
}

/** Adds the port to an address that has none; any other text, also a wrong one, comes back as it is. Pure. */
export function appendPortIfNeeded(address: string, port: number): string {
  if (parseIpAddress(address) === undefined || toPort(port) === undefined) return address;
  // The user's own spelling is kept: it is shown again in the configuration that is written back.
  return joinHostPort(address, port);
}
