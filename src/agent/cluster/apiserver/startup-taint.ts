/** Removes a taint from the Node once the rules are in place: pods of a new node wait for them (`--startup-taint`). */
import type { Clock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { isJsonObject } from "../../../model/projection/fields.ts";
import type { Transport } from "./connection/transport.ts";
import { readJson } from "./formats/json.ts";
import { BoundedPiece } from "./formats/pieces.ts";

const STAYS = "The start-up taint cannot be removed, trying again";

interface StartupTaintOptions {
  readonly transport: Pick<Transport, "send" | "close">;
  readonly nodeName: string;
  /** The UID of the current Node; undefined while there is none. */
  readonly uid: () => string | undefined;
  readonly key: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called with the reason why the taint cannot be removed, and with `undefined` once it is. */
  readonly onProblem: (problem: string | undefined) => void;
}

/** Also the interval of checks whether the Node is still the same object. */
const RETRY_MS = 5_000;
const IDLE_MS = 30_000;
/** A persistent failure is logged once, and again after this time. */
const REMIND_AFTER_MS = 300_000;

/**
 * Retries until the taint is gone, and does so again for each Node of that name that kubelet registers later, as the
 * rules stay. Ends when the signal aborts. Never rejects.
 */
export async function removeStartupTaint(options: StartupTaintOptions, signal: AbortSignal): Promise<void> {
  const { key: taint, transport, uid, clock, log, onProblem } = options;
  let isDue = true;
  let doneUid: string | undefined;
  let told: { readonly reason: string; readonly atMs: number } | undefined;
  while (!signal.aborted) {
    const knownUid = uid();
    if (knownUid !== undefined && knownUid !== doneUid) isDue = true;
    if (isDue) {
      try {
        const isRemoved = await remove(options, signal);
        log.info(isRemoved ? "Removed the start-up taint" : "The Node has no start-up taint", { taint, solves: STAYS });
        isDue = false;
        doneUid = knownUid;
        told = undefined;
        onProblem(undefined);
        transport.close();
      } catch (error) {
        if (signal.aborted) break;
        const [reason, atMs] = [messageOf(error), clock.monotonicMs()];
        onProblem(reason);
        if (told?.reason !== reason || atMs - told.atMs >= REMIND_AFTER_MS) {
          const facts = { taint, needs: "get and patch of nodes" };
          log.error(STAYS, error, facts);
          told = { reason, atMs };
        }
      }
    }
    await clock.sleep(RETRY_MS, signal);
  }
  transport.close();
}

async function remove({ transport, nodeName, key }: StartupTaintOptions, signal: AbortSignal): Promise<boolean> {
  const request = { resource: "nodes", path: `/api/v1/nodes/${encodeURIComponent(nodeName)}`, idleMs: IDLE_MS };
  const { body } = await transport.send({ ...request, verb: "get", method: "GET" }, signal);
  const answer = new BoundedPiece();
  for await (const chunk of body) answer.add(chunk);
  const node = readJson(answer.take(Buffer.alloc(0)));
  const { metadata, spec } = isJsonObject(node) ? node : {};
  const taints = isJsonObject(spec) && Array.isArray(spec.taints) ? spec.taints : [];
  const left = taints.filter((taint) => !isJsonObject(taint) || taint.key !== key);
  if (left.length === taints.length) return false;
  // The patch replaces the whole list; the resource version protects taints that were added in the meantime.
  const { resourceVersion } = isJsonObject(metadata) ? metadata : {};
  const patch = { metadata: { resourceVersion }, spec: { taints: left } };
  const patched = await transport.send(
    {
      ...{ ...request, verb: "patch", method: "PATCH" },
      body: { contentType: "application/merge-patch+json", text: JSON.stringify(patch) },
    },
    signal,
  );
  for await (const chunk of patched.body) void chunk;
  return true;
}
