/** A plain HTTP client for tests: one request per connection, the whole answer at once. */
import type { Agent, IncomingHttpHeaders } from "node:http";
import { request } from "../../../kernel/node-http.ts";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  readonly text: string;
}

export interface AskOptions {
  readonly host?: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** @default one connection per request */
  readonly agent?: Agent;
}

/** Sends a request to a port of the loopback address. Rejects when no answer comes. */
export function ask(port: number, path: string, options: AskOptions = {}): Promise<Answer> {
  const { host = "127.0.0.1", method = "GET", headers = {}, body, agent } = options;
  return new Promise((resolve, reject) => {
    const outgoing = request(
      { host, port, path, method, headers: { ...headers }, agent: agent ?? false },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () => {
          const bytes = Buffer.concat(chunks);
          resolve({ status: response.statusCode ?? 0, headers: response.headers, bytes, text: bytes.toString() });
        });
      },
    );
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

/** Finds a port on which nothing listens at the moment. */
export async function freePort(): Promise<number> {
  const { createServer } = await import("node:net");
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.on("error", reject);
    probe.listen({ host: "::", port: 0 }, () => {
      const address = probe.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      probe.close(() => resolve(port));
    });
  });
}
