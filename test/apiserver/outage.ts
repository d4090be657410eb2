/** Every form of an outage of the API server, and what a node's watches use in it. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { engineOptions, memoryEnvironment } from "../../bench/workers.ts";
import { CertificateAuthority } from "../../src/agent/cluster/apiserver/testing/certificates.ts";
import type { OutageTask, Usage } from "./outage-client.ts";

const CLIENT = fileURLToPath(new URL("./outage-client.ts", import.meta.url));

const authority = new CertificateAuthority();
const leaf = authority.issue({ commonName: "server", names: ["127.0.0.1"] });
const node = authority.issue({ commonName: "system:node:a" });

type Form = Partial<Omit<OutageTask, "checkpoints">> & {
  /** How each attempt ends. @default without a status */
  readonly ending?: string;
  /** Undefined: nothing listens. */
  readonly server?: (folder: string) => Server;
  /** The server is a proxy in front of an API server that is never reached. */
  readonly isProxy?: boolean;
};

const verified = { ca: authority.certificate };
const answering = (status: number) => (): Server =>
  createTlsServer({ cert: leaf.certificate, key: leaf.key }, (_request, response) => {
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ kind: "Status", apiVersion: "v1", status: "Failure", code: status }));
  });
const accepting = (work: (socket: Socket) => void) => (): Server => createServer(work);
const proxyAnswering = (text: string) =>
  accepting((socket) => socket.once("data", () => socket.end(`HTTP/1.1 ${text}\r\n\r\n`)));

/** By name. Where a form has no `ca`, the machine's roots are trusted. */
export const OUTAGES: Readonly<Record<string, Form>> = {
  "refused, the machine's roots": {},
  "refused, nothing verified": { isServerVerified: false },
  "refused, a CA and a client certificate": {
    ...verified,
    clientCertificate: {
      certificate: { kind: "data", text: node.certificate },
      key: { kind: "data", text: node.key },
    },
  },
  "accepted and closed": { server: accepting((socket) => socket.end()) },
  "accepted and reset": { server: accepting((socket) => socket.resetAndDestroy()) },
  silent: { server: accepting(() => {}), silenceMs: 20 },
  "silent after the handshake": {
    ...verified,
    server: () => createTlsServer({ cert: leaf.certificate, key: leaf.key }, () => {}),
    silenceMs: 50,
  },
  "a certificate of an unknown authority": { server: answering(503) },
  "no TLS": { server: proxyAnswering("400 Bad Request") },
  401: { ...verified, server: answering(401), ending: "401" },
  503: { ...verified, server: answering(503), ending: "503" },
  "401 and certificates that rotate": { ...verified, server: rotating, ending: "401" },
  "401, certificates that rotate, nothing verified": { isServerVerified: false, server: rotating, ending: "401" },
  "a proxy that refuses": { server: proxyAnswering("502 Bad Gateway"), isProxy: true },
  "a silent proxy": { server: accepting(() => {}), isProxy: true, silenceMs: 20 },
  "a proxy that closes": { server: accepting((socket) => socket.end()), isProxy: true },
  "a proxy that closes the tunnel": { server: proxyAnswering("200 OK"), isProxy: true },
  "no proxy": { isProxy: true },
};

/** Client certificates that are replaced again and again while the server refuses all of them. */
function rotating(folder: string): Server {
  const pairs = [node, authority.issue({ commonName: "system:node:a" })];
  let count = 0;
  const place = (): void => {
    const { certificate = "", key = "" } = pairs[Math.floor(count++ / 20) % pairs.length] ?? {};
    writeFileSync(join(folder, "client.crt"), certificate);
    writeFileSync(join(folder, "client.key"), key);
  };
  place();
  const server = answering(401)();
  return server.on("request", (_request, response: ServerResponse) => response.once("finish", place));
}

export interface OutageCost {
  /** From the first checkpoint to the last: resident memory, open descriptors. */
  readonly grownMb: number;
  readonly descriptors: number;
  /** Processor time of each attempt. */
  readonly cpuMs: number;
  /** How attempts ended: statuses, or `<error>`. */
  readonly endings: readonly string[];
  readonly usages: readonly Usage[];
}

/** @param checkpoints numbers of attempts. */
export async function measureOutage(name: string, checkpoints: readonly number[]): Promise<OutageCost> {
  const usages = await usagesIn(name, checkpoints);
  const [first] = usages;
  const last = usages.at(-1);
  if (first === undefined || last === undefined || usages.length < checkpoints.length) {
    throw new Error(`${name}: the client ended after ${usages.length} of ${checkpoints.length} checkpoints`);
  }
  return {
    grownMb: last.residentMb - first.residentMb,
    descriptors: last.descriptors - first.descriptors,
    cpuMs: (last.cpuMs - first.cpuMs) / (last.attempts - first.attempts),
    endings: last.endings,
    usages,
  };
}

async function usagesIn(name: string, checkpoints: readonly number[]): Promise<readonly Usage[]> {
  const form = OUTAGES[name];
  if (form === undefined) throw new Error(`no outage ${name}`);
  const { server: start, isProxy = false, ending: _ending, ...given } = form;
  const folder = mkdtempSync(join(tmpdir(), "kpts-outage-"));
  const cleanups = [() => rmSync(folder, { recursive: true })];
  try {
    const server = start?.(folder) ?? createServer();
    const sockets = new Set<Socket>();
    server.on("connection", (socket: Socket) => {
      sockets.add(socket);
      socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    cleanups.push(() => {
      server.removeAllListeners("request").close();
      for (const socket of sockets) socket.destroy();
    });
    const { port } = server.address() as AddressInfo;
    if (start === undefined) await new Promise((resolve) => server.close(resolve));
    const own = `127.0.0.1:${port}`;
    const task: OutageTask = {
      isServerVerified: true,
      silenceMs: 10_000,
      ...given,
      ...(start === rotating && {
        clientCertificate: {
          certificate: { kind: "file", path: join(folder, "client.crt") },
          key: { kind: "file", path: join(folder, "client.key") },
        },
      }),
      url: isProxy ? "https://192.0.2.1:6443" : `https://${own}`,
      proxyUrl: isProxy ? `http://${own}` : undefined,
      checkpoints,
    };
    return await runClient(task);
  } finally {
    for (const cleanUp of cleanups.reverse()) cleanUp();
  }
}

async function runClient(task: OutageTask): Promise<readonly Usage[]> {
  const child = spawn(process.execPath, [...engineOptions(), CLIENT, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { PATH: process.env.PATH, ...memoryEnvironment() },
  });
  const usages: Usage[] = [];
  for await (const line of createInterface({ input: child.stdout })) usages.push(JSON.parse(line));
  return usages;
}
