/**
 * Sends an HTTP request to a server in a network namespace, from a thread that stays outside: a socket belongs to the
 * namespace that its thread was in when it was opened. A prober, which is a thread, takes as long to start as a process.
 */
import { closeSync } from "node:fs";
import type { RequestOptions } from "node:http";
import { Socket } from "node:net";
import { constants } from "node:os";
import { errnoName } from "../../src/kernel/netlink/errors.ts";
import { libc, reliableErrno } from "../../src/kernel/netlink/libc.ts";
import { inNetworkNamespace } from "../../src/kernel/network-namespace.ts";
import { request } from "../../src/kernel/node-http.ts";
import { ADDRESS_FAMILIES, socketAddress } from "../../src/kernel/socket-address.ts";
import { familyOf, parseIpAddress } from "../../src/net/ip.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

/** SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC. */
const STREAM = 1 | 0o4000 | 0o2000000;
const { ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EADDRNOTAVAIL, EACCES, EPERM } = constants.errno;
const REFUSALS: ReadonlySet<number> = new Set([
  ...[ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EADDRNOTAVAIL, EACCES, EPERM],
]);

/** A server's answer; status 0 means no HTTP answer, and `body` says why. */
export interface FetchAnswer {
  readonly status: number;
  readonly body: string;
}

/**
 * Sends one request on a new connection.
 *
 * @param url its host must be an IP address. @param timeoutMs how long nothing may arrive.
 */
export async function fetchInside(namespace: NetworkNamespace, url: string, timeoutMs: number): Promise<FetchAnswer> {
  const { hostname, port, pathname, search } = new URL(url);
  try {
    const socket = inNetworkNamespace(namespace.path, () => connected(hostname, port === "" ? 80 : Number(port)));
    return await ask(socket, { host: hostname, port, path: pathname + search, timeout: timeoutMs });
  } catch (error) {
    return { status: 0, body: error instanceof Error ? error.message : String(error) };
  }
}

/** A connection that is open or in progress. @throws Error if it was refused, and without an address. */
function connected(host: string, port: number): Socket {
  const address = parseIpAddress(host.replace(/^\[|\]$/g, ""));
  if (address === undefined) throw new TypeError(`no IP address: ${host}`);
  const calls = libc();
  const fd = calls.socket(ADDRESS_FAMILIES[familyOf(address)], STREAM, 0);
  if (fd < 0) throw new Error(`no socket: ${errnoName(calls.errno())}`);
  const to = socketAddress({ address, port });
  const connect = () => calls.connect(fd, to, to.length);
  const failure = connect() < 0 ? reliableErrno(calls, connect) : 0;
  if (isRefusal(failure)) {
    closeSync(fd);
    throw new Error(`connect ${errnoName(failure)} ${host}:${port}`);
  }
  return new Socket({ fd });
}

/**
 * Whether a connection is impossible. Any other errno means one in progress or, if it was established between two
 * checks of errno, what the engine's own calls left there: on a busy machine, ETIMEDOUT.
 */
export function isRefusal(errno: number): boolean {
  return REFUSALS.has(errno);
}

function ask(socket: Socket, where: RequestOptions): Promise<FetchAnswer> {
  return new Promise((resolve, reject) => {
    const call = request({ ...where, createConnection: () => socket }, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        body += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
      response.on("error", reject);
    });
    call.on("timeout", () => call.destroy(new Error("no answer in time")));
    call.on("error", reject);
    call.end();
  });
}
