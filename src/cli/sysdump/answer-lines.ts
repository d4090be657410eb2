/** Answers of a running daemon that have no end of their own. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { request } from "../../kernel/node-http.ts";
import { UsageError } from "../exit.ts";
import { LIMIT_MS } from "../inspect-socket-client.ts";

/**
 * Lines of an answer that has no end of its own: at most so many, until none has come for some time.
 *
 * @throws UsageError when nothing answers, or the daemon does not know the path.
 */
export async function readLines(
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
