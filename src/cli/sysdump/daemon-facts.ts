/** A running daemon's reports about itself, over its inspect socket and HTTP ports. Without one, each part says so. */

import { createInterface } from "node:readline";
import { request } from "../../kernel/node-http.ts";
import { askDaemon } from "../inspect-socket-client.ts";
import { openJournal } from "../monitor.ts";
import { PartError, type SysdumpPart } from "./archive.ts";
import { redacted, withoutSecrets } from "./redact.ts";
import type { HttpPlaces } from "./settings.ts";

const LIMIT_MS = 5_000;
const MOST_BYTES = 64 * 1024 * 1024;
const JOURNAL_RECORDS = 1_000;
/** The journal never ends by itself: stop after this long without a line. */
const JOURNAL_QUIET_MS = 500;

/** @param socket, metrics, healthz addresses of the daemon. */
export function daemonFacts(socket: string, { metrics, healthz }: HttpPlaces): readonly SysdumpPart[] {
  const page = (name: string, address: string, path: string, clean = (text: string) => text): SysdumpPart => ({
    name: `daemon/${name}`,
    read: async () => clean(await httpText(address, path)),
  });
  return [
    { name: "daemon/status.json", read: () => askedJson(socket, "/status") },
    { name: "daemon/services.json", read: () => askedJson(socket, "/services") },
    {
      name: "daemon/journal.jsonl",
      read: async () => (await journalLines(socket)).map((line) => `${line}\n`).join(""),
    },
    page("healthz.json", healthz, "/healthz"),
    page("metrics.txt", metrics, "/metrics"),
    page("configz.json", metrics, "/configz", redactedJson),
    page("flagz.txt", metrics, "/flagz", withoutSecrets),
    page("statusz.txt", metrics, "/statusz", withoutSecrets),
  ];
}

async function askedJson(socket: string, path: string): Promise<string> {
  return `${JSON.stringify(await askDaemon(socket, path), undefined, 1)}\n`;
}

function redactedJson(text: string): string {
  try {
    return `${JSON.stringify(redacted(JSON.parse(text)), undefined, 1)}\n`;
  } catch {
    throw new PartError("the answer is not JSON");
  }
}

/** @throws PartError if nothing answers there. */
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
      // An unhealthy daemon gives the reason with another status.
      if (response.statusCode === 200 || path === "/healthz") resolve(text);
      else fail(new Error(`status ${response.statusCode}`));
    });
  });
  asked.on("timeout", () => asked.destroy(new Error(`nothing within ${LIMIT_MS / 1_000} seconds`)));
  asked.on("error", fail);
  asked.end();
  return promise;
}

/** The last lines of the journal, which never ends by itself. @throws UsageError if there is none. */
async function journalLines(socket: string): Promise<readonly string[]> {
  const response = await openJournal(socket, JOURNAL_RECORDS);
  const lines: string[] = [];
  const quiet = setTimeout(() => response.destroy(new Error("no line has come")), JOURNAL_QUIET_MS);
  try {
    for await (const line of createInterface({ input: response })) {
      lines.push(line);
      quiet.refresh();
      if (lines.length >= JOURNAL_RECORDS) break;
    }
  } catch {
    // Ended by us or by the daemon: the lines so far count.
  } finally {
    clearTimeout(quiet);
    response.destroy();
  }
  return lines;
}
