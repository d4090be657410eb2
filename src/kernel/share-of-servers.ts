/** How many of the process's files and connections are for its HTTP servers. */

/** What the HTTP servers have when descriptors do not matter. */
const SERVERS_MOST = 1536;
const SERVERS_LEAST = 16;
/** One in this many descriptors is for connections to the servers; the others are the reserve. */
const SERVERS_PART = 4;

/** Descriptors that the HTTP servers' connections may take. Pure. */
export function shareOfServers(fileLimit: number): number {
  return Math.min(SERVERS_MOST, Math.max(SERVERS_LEAST, Math.floor(fileLimit / SERVERS_PART)));
}
