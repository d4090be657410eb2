/** Asks a running daemon over its inspect socket. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { request } from "../kernel/node-http.ts";
import { UsageError } from "./exit.ts";

const LIMIT_MS = 5_000;

/** The answer to GET `path`, parsed. @throws UsageError when nothing answers, or what answers is no daemon of this program. */
export async function askDaemon(socketPath: string, path: string): Promise<unknown> {
  let answer: { readonly status: number; readonly text: string };
  try {
    answer = await answerOf(socketPath, path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(
      `no answer at ${socketPath}: ${reason}`,
      "Is the daemon running with --inspect-socket, and are you its user?",
    );
  }
  const hint = "Use the kube-proxy program that the daemon was started from.";
  if (answer.status === 404) {
    throw new UsageError(`the daemon at ${socketPath} does not know ${path}: it is of another version`, hint);
  }
  try {
    return JSON.parse(answer.text);
  } catch {
    throw new UsageError(`what answers at ${socketPath} is no daemon of this program, or one of another version`, hint);
  }
}

function answerOf(socketPath: string, path: string): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path, timeout: LIMIT_MS }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      response.on("error", reject);
    });
    asked.on("timeout", () => asked.destroy(new Error(`nothing within ${LIMIT_MS / 1_000} seconds`)));
    asked.on("error", reject);
    asked.end();
  });
}

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
