/** What a running daemon says of itself, over its inspect socket and its HTTP ports. Without one, each part says so. */

import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { request } from "../../kernel/node-http.ts";
import { UsageError } from "../exit.ts";
import { askDaemon } from "../inspect-socket-client.ts";
import { PartError, type SysdumpPart } from "./archive.ts";
import { redacted, withoutCredentials, withoutSecrets } from "./redact.ts";

const LIMIT_MS = 5_000;
const MOST_BYTES = 64 * 1024 * 1024;
const JOURNAL_RECORDS = 1_000;
/** The journal goes on for as long as it is read: this long without a line ends it. */
const JOURNAL_QUIET_MS = 500;

/** Where a daemon answers. */
interface DaemonPlaces {
  readonly socket: string;
  /** `127.0.0.1:10249` */
  readonly metrics: string;
  readonly healthz: string;
}

export function daemonFacts({ socket, metrics, healthz }: DaemonPlaces): readonly SysdumpPart[] {
  const page = (name: string, address: string, path: string, clean: (text: string) => string): SysdumpPart => ({
    name: `daemon/${name}`,
    read: async () => clean(await httpText(address, path)),
  });
  return [
    { name: "daemon/status.json", read: () => ofSocket(socket, (path) => askedJson(path, "/status")) },
    { name: "daemon/services.json", read: () => ofSocket(socket, (path) => askedJson(path, "/services")) },
    {
      name: "daemon/journal.jsonl",
      read: () =>
        ofSocket(socket, async (path) => {
          const question = `/journal?last=${JOURNAL_RECORDS}`;
          const lines = await readLines(path, question, { most: JOURNAL_RECORDS, quietMs: JOURNAL_QUIET_MS });
          return withoutCredentials(lines.map((line) => `${line}\n`).join(""));
        }),
    },
    page("healthz.json", healthz, "/healthz", withoutCredentials),
    page("metrics.txt", metrics, "/metrics", withoutCredentials),
    page("configz.json", metrics, "/configz", redactedJson),
    page("flagz.txt", metrics, "/flagz", withoutSecrets),
    page("statusz.txt", metrics, "/statusz", withoutSecrets),
  ];
}

async function ofSocket(socket: string, ask: (socket: string) => Promise<string>): Promise<string> {
  try {
    return await ask(socket);
  } catch (error) {
    if (error instanceof UsageError) throw new PartError(error.message);
    throw error;
  }
}

async function askedJson(socket: string, path: string): Promise<string> {
  return withoutCredentials(`${JSON.stringify(await askDaemon(socket, path), undefined, 1)}\n`);
}

function redactedJson(text: string): string {
  try {
    return `${JSON.stringify(redacted(JSON.parse(text)), undefined, 1)}\n`;
  } catch {
    throw new PartError("the answer is no JSON");
  }
}

/** @throws PartError when nothing answers there. */
function httpText(address: string, path: string): Promise<string> {
  if (address === "") throw new PartError("the configuration has switched it off");
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const fail = (error: Error) => reject(new PartError(`http://${address}${path}: ${error.message}`));
  const asked = request(`http://${address}${path}`, { timeout: LIMIT_MS }, (response) => {
    const parts: Buffer[] = [];
    let size = 0;
    response.on("data", (part: Buffer) => {
      parts.push(part);
      size += part.length;
      if (size > MOST_BYTES) asked.destroy(new Error("the answer is too long"));
    });
    response.on("error", fail);
    response.on("end", () => {
      const text = Buffer.concat(parts).toString();
      // An unhealthy daemon says why with another status.
      if (response.statusCode === 200 || path === "/healthz") resolve(text);
      else fail(new Error(`status ${response.statusCode}`));
    });
  });
  asked.on("timeout", () => asked.destroy(new Error(`nothing within ${LIMIT_MS / 1_000} seconds`)));
  asked.on("error", fail);
  asked.end();
  return promise;
}

/**
 * Lines of an answer that has no end of its own: at most so many, until none has come for some time.
 *
 * @throws UsageError when nothing answers, or the daemon does not know the path.
 */
async function readLines(
  socketPath: string,
  path: string,
  { most, quietMs }: { readonly most: number; readonly quietMs: number },
): Promise<readonly string[]> {
  const asked = request({ socketPath, path, timeout: LIMIT_MS });
  asked.on("timeout", () => asked.destroy(new Error(`nothing within ${LIMIT_MS / 1_000} seconds`)));
  asked.end();
  let response: IncomingMessage;
  try {
    [response] = (await once(asked, "response")) as [IncomingMessage];
  } catch (error) {
    throw new UsageError(`no answer at ${socketPath}: ${error instanceof Error ? error.message : error}`);
  }
  if (response.statusCode !== 200) {
    asked.destroy();
    throw new UsageError(`the daemon at ${socketPath} does not know ${path}: it is of another version`);
  }
  const lines: string[] = [];
  const quiet = setTimeout(() => asked.destroy(), quietMs);
  asked.on("error", () => {});
  try {
    for await (const line of createInterface({ input: response })) {
      lines.push(line);
      quiet.refresh();
      if (lines.length >= most) break;
    }
  } catch {
    // Ended by us, or by the daemon: what has come counts.
  } finally {
    clearTimeout(quiet);
    asked.destroy();
  }
  return lines;
}
