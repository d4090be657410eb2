/** A client that makes requests on demand, a thread in a namespace; it replies in the order in which they finish (messages.ts). */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect, Socket } from "node:net";
import { type IpAddress, parseIpAddress } from "../../src/net/ip.ts";
import { serveRequests } from "./helper-side.ts";
import type {
  BackendAnswer,
  ConnectReply,
  ConnectRequest,
  FetchReply,
  FetchRequest,
  ProbeAnswer,
  ProbeFailure,
  ProbeReply,
  ProbeRequest,
} from "./messages.ts";

const REQUEST = "GET / HTTP/1.0\r\n\r\n";

function answered(text: string): ProbeAnswer {
  if (text === "") return failed("closed", "the connection ended without an answer");
  try {
    const { pod, peer } = JSON.parse(text) as BackendAnswer;
    return { ok: true, pod, peer };
  } catch {
    return { ok: false, error: "other", detail: `not an answer of a backend: ${text.slice(0, 80)}` };
  }
}

function failed(error: ProbeFailure, detail: string): ProbeAnswer {
  return { ok: false, error, detail };
}

function failureOf(error: NodeJS.ErrnoException): ProbeAnswer {
  return failed(FAILURES[error.code ?? ""] ?? "other", error.message);
}

const FAILURES: Readonly<Record<string, ProbeFailure>> = {
  ECONNREFUSED: "refused",
  ECONNRESET: "closed",
  EPIPE: "closed",
};

const probeTcp = (request: ConnectRequest) => askOver(connect({ host: request.address, port: request.port }), request);

async function probeSctp(request: ConnectRequest): Promise<ProbeAnswer> {
  const address = parseIpAddress(request.address);
  if (address === undefined) return failed("other", `no IP address: ${request.address}`);
  const from = await sourceAddress(request);
  // Only here: most probers never need the C library.
  const { connectSctp } = await import("./sctp/sctp-socket.ts");
  const connection = await connectSctp({ address, port: request.port }, request.timeoutMs, from);
  if (connection.kind === "failed") return failed("other", connection.detail);
  if (connection.kind !== "open") return failed(connection.kind, `no association in ${request.timeoutMs} ms`);
  const socket = new Socket({ fd: connection.fd });
  const answer = askOver(socket, request);
  socket.write(REQUEST);
  return await answer;
}

/** A port that no service has: the mode that decides at the socket would redirect a service's to an endpoint at once. */
const NO_SERVICE_PORT = 9;

/** The source address that the kernel chooses for that destination; undefined without a route. */
async function sourceAddress({ address }: ConnectRequest): Promise<IpAddress | undefined> {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  try {
    // Sends nothing.
    socket.connect(NO_SERVICE_PORT, address);
    await once(socket, "connect");
    return parseIpAddress(socket.address().address);
  } catch {
    return undefined;
  } finally {
    socket.close();
  }
}

function askOver(socket: Socket, { timeoutMs }: ConnectRequest): Promise<ProbeAnswer> {
  return new Promise((resolve) => {
    let text = "";
    const finish = (answer: ProbeAnswer): void => {
      clearTimeout(timer);
      // A reset instead of an orderly close: neither side keeps a TIME_WAIT that could meet the next request's tuple.
      socket.resetAndDestroy();
      resolve(answer);
    };
    const timer = setTimeout(() => finish(failed("timeout", `no answer in ${timeoutMs} ms`)), timeoutMs);
    socket.on("error", (error) => finish(failureOf(error)));
    socket.on("connect", () => socket.write(REQUEST));
    socket.on("data", (chunk) => {
      text += chunk.toString();
    });
    socket.on("end", () => finish(answered(text.slice(text.indexOf("\r\n\r\n") + 4))));
  });
}

function probeUdp(request: ConnectRequest): Promise<ProbeAnswer> {
  return new Promise((resolve) => {
    const socket = createSocket(request.address.includes(":") ? "udp6" : "udp4");
    const finish = (answer: ProbeAnswer): void => {
      clearTimeout(timer);
      socket.close();
      resolve(answer);
    };
    const timer = setTimeout(
      () => finish(failed("timeout", `no answer in ${request.timeoutMs} ms`)),
      request.timeoutMs,
    );
    socket.on("error", (error) => finish(failureOf(error)));
    socket.on("message", (text) => finish(answered(text.toString())));
    const send = (): void => {
      // Connected, so that the kernel reports an ICMP error to this socket.
      socket.connect(request.port, request.address, () => {
        // A local packet filter answers EPERM for both drop and reject; the ICMP error or the silence tells them apart.
        socket.send("?", () => {});
      });
    };
    if (request.sourcePort === undefined) send();
    else socket.bind(request.sourcePort, send);
  });
}

const probes = { TCP: probeTcp, UDP: probeUdp, SCTP: probeSctp } satisfies Record<ConnectRequest["protocol"], unknown>;

async function probe(request: ConnectRequest): Promise<ConnectReply> {
  const ask = probes[request.protocol];
  const count = request.count ?? 1;
  if (request.sequential !== true) {
    return {
      id: request.id,
      kind: "connect",
      answers: await Promise.all(Array.from({ length: count }, () => ask(request))),
    };
  }
  const answers: ProbeAnswer[] = [];
  while (answers.length < count && answers.at(-1)?.ok !== false) answers.push(await ask(request));
  return { id: request.id, kind: "connect", answers };
}

function fetchText(request: FetchRequest): Promise<FetchReply> {
  // An `import` would load everything, including a WebSocket client: half of this thread's start time.
  const { get } = process.getBuiltinModule("node:http");
  return new Promise((resolve) => {
    const done = (status: number, body: string): void => resolve({ id: request.id, kind: "fetch", status, body });
    const call = get(request.url, { timeout: request.timeoutMs }, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        body += chunk;
      });
      response.on("end", () => done(response.statusCode ?? 0, body));
      response.on("error", (error) => done(0, error.message));
    });
    call.on("timeout", () => call.destroy(new Error(`no answer in ${request.timeoutMs} ms`)));
    call.on("error", (error) => done(0, error.message));
  });
}

serveRequests(
  () =>
    (request: ProbeRequest): Promise<ProbeReply> =>
      request.kind === "connect" ? probe(request) : fetchText(request),
);
