/**
 * How a connection through this node's rules fares, for `/healthz`. If the Service does not answer, its endpoints are
 * asked directly, bypassing the rules: if they do not answer either, another node would be no better off.
 */
import type { Clock } from "../../async/clock.ts";
import { sharedReading } from "../../async/shared-reading.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ProbeOutcome } from "../../model/left-endpoints.ts";
import type { ProxyState } from "../../model/proxy-state.ts";
import type { NodeTopology } from "../../model/service-port-routing.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { type IpAddress, parseHostPort } from "../../net/ip.ts";
import type { ProbeFinding } from "../server/health/proxy-health.ts";

interface ServiceProbeOptions {
  /** `namespace/name`, with `:port` if the port has a name. */
  readonly service: string;
  /** Of each family. */
  readonly states: readonly Pick<ProxyState, "services" | "endpoints">[];
  readonly topology: () => NodeTopology;
  readonly clock: Clock;
  /** @returns why there is no connection. @default over TCP */
  readonly connect?: (address: IpAddress, port: number, limitMs: number) => Promise<string | undefined>;
}

const LIMIT_MS = 1_000;
/** At most this many endpoints are asked. */
const MOST_ENDPOINTS = 2;
/** How long a finding is reused, however many ask. */
const HOLDS_MS = 1_000;

/** @returns the probe; concurrent callers get the same answer. */
export function serviceProbe(options: ServiceProbeOptions): () => Promise<ProbeFinding> {
  return sharedReading(() => probe(options), HOLDS_MS, options.clock);
}

async function probe({ service, states, topology, connect = connectTcp }: ServiceProbeOptions): Promise<ProbeFinding> {
  const key = `${service}/TCP`;
  const state = states.find(({ services }) => services.has(key));
  const port = state?.services.get(key);
  if (state === undefined || port === undefined) return { isFailure: false, reason: "there is no such TCP port" };
  const routing = routeServicePort(port, state.endpoints.get(key) ?? [], topology());
  const endpoints = port.internalPolicyLocal ? routing.local : routing.cluster;
  if (endpoints.length === 0) return { isFailure: false, reason: "it has no endpoint for this node" };
  const reason = await connect(port.clusterIP, port.port, LIMIT_MS);
  if (reason === undefined) return undefined;
  const asked = endpoints.slice(0, MOST_ENDPOINTS);
  const direct = await Promise.all(asked.map(async (one: Endpoint) => await connect(one.ip, one.port, LIMIT_MS)));
  const answering = asked.find((_, at) => direct[at] === undefined);
  const past =
    answering === undefined ? "nor do its endpoints answer" : `though its endpoint ${answering.text} answers`;
  return { isFailure: answering !== undefined, reason: `no connection to its cluster IP (${reason}), ${past}` };
}

async function connectTcp(host: IpAddress, port: number, limitMs: number): Promise<string | undefined> {
  const error = await tryTcp(host, port, limitMs);
  return error && messageOf(error);
}

/** @returns why there is no connection. */
async function tryTcp(host: IpAddress, port: number, limitMs: number): Promise<NodeJS.ErrnoException | undefined> {
  const { promise, resolve } = Promise.withResolvers<NodeJS.ErrnoException | undefined>();
  const socket = process.getBuiltinModule("node:net").connect({ host, port, timeout: limitMs });
  socket.once("connect", () => resolve(undefined));
  const silence = Object.assign(new Error(`no answer within ${limitMs} ms`), { code: "ETIMEDOUT" });
  // Node.js runs timers before socket events: an answer that came while the process was busy must count.
  socket.once("timeout", () => setImmediate(resolve, silence));
  socket.once("error", resolve);
  try {
    return await promise;
  } finally {
    socket.on("error", () => {}).destroy();
  }
}

/** The kernel would send the SYN again after a second. */
const PROBE_LIMIT_MS = 900;
/** For the limit of open files. */
const MOST_PROBES = 64;
const OUTCOMES: Readonly<Record<string, ProbeOutcome>> = {
  ETIMEDOUT: "silent",
  ECONNREFUSED: "refused",
  EHOSTUNREACH: "unreachable",
  ENETUNREACH: "unreachable",
};
let openProbes = 0;

/** Connects to an endpoint, `ip:port`, past the rules. Never rejects. */
export async function probeEndpoint(endpoint: string): Promise<ProbeOutcome> {
  const { address, port } = parseHostPort(endpoint) ?? {};
  if (address === undefined || port === undefined || openProbes >= MOST_PROBES) return "failed";
  openProbes += 1;
  const error = await tryTcp(address, port, PROBE_LIMIT_MS);
  openProbes -= 1;
  return error === undefined ? "answered" : (OUTCOMES[error.code ?? ""] ?? "failed");
}
