/** Asks a running daemon over its inspect socket. */
import { request } from "node:http";
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
