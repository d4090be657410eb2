/** How many of the process's descriptors its HTTP servers may use for connections. */

/** The servers' share when descriptors are plentiful. */
const SERVERS_MOST = 1536;
const SERVERS_LEAST = 16;
/** One in this many descriptors is for connections to the servers; the rest is in reserve. */
const SERVERS_PART = 4;

/** The number of descriptors that the HTTP servers' connections may take. */
export function shareOfServers(fileLimit: number): number {
  return Math.min(SERVERS_MOST, Math.max(SERVERS_LEAST, Math.floor(fileLimit / SERVERS_PART)));
}
