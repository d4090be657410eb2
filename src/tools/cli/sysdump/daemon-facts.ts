/** A running daemon's reports about itself, over its inspect socket and HTTP ports. Without one, each part says so. */

import { addAbortSignal, Readable } from "node:stream";
import { messageOf } from "../../../logging/message-of.ts";
import { withoutSecrets } from "../../../logging/secrets.ts";
import { readBounded } from "../bounded-input.ts";
import { askDaemon } from "../inspect-socket-client.ts";
import { openJournal } from "../monitor.ts";
import { PartError, type SysdumpPart } from "./archive.ts";
import { redacted } from "./redact.ts";
import type { HttpPlaces } from "./settings.ts";

const LIMIT_MS = 5_000;
const MOST_BYTES = 64 * 1024 * 1024;
const JOURNAL_RECORDS = 1_000;

/** @param socket, metrics, healthz addresses of the daemon. */
export function daemonFacts(socket: string, { metrics, healthz }: HttpPlaces): readonly SysdumpPart[] {
  const page = (name: string, address: string, path: string, clean = (text: string) => text): SysdumpPart => ({
    name: `daemon/${name}`,
    read: async () => clean(await httpText(address, path)),
  });
  return [
    { name: "daemon/status.json", read: () => askedJson(socket, "/status") },
    { name: "daemon/services.json", read: () => askedJson(socket, "/services") },
    { name: "daemon/journal.jsonl", read: () => journalText(socket) },
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
async function httpText(address: string, path: string): Promise<string> {
  if (address === "") throw new PartError("the configuration has switched it off");
  try {
    const { status, body } = await fetch(`http://${address}${path}`, { signal: AbortSignal.timeout(LIMIT_MS) });
    // An unhealthy daemon gives the reason with another status.
    if (status !== 200 && path !== "/healthz") throw new Error(`status ${status}`);
    return (await readBounded(Readable.from(body ?? []), MOST_BYTES)).toString("utf8");
  } catch (error) {
    const { cause = error } = error instanceof Error ? error : {};
    throw new PartError(`http://${address}${path}: ${messageOf(cause)}`);
  }
}

/** The last syncs. @throws UsageError if there is no journal. */
async function journalText(socket: string): Promise<string> {
  const journal = addAbortSignal(AbortSignal.timeout(LIMIT_MS), await openJournal(socket, JOURNAL_RECORDS, false));
  return (await readBounded(journal, MOST_BYTES)).toString("utf8");
}
