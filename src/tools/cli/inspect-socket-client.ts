/** Asks a running daemon over its inspect socket. */
import { connect } from "node:net";
import { jsonIn } from "../../logging/attempt.ts";
import { DEFAULT_INSPECT_SOCKET } from "../../program/program-identity.ts";
import { refusalText } from "./bounded-input.ts";
import { UsageError } from "./output.ts";
import type { OptionValues } from "./subcommand-options.ts";

/** The options of a command that queries a daemon; on-nodes.ts takes those after the first. */
export const DAEMON_OPTIONS = {
  "--socket FILE": `the daemon's --inspect-socket (default ${DEFAULT_INSPECT_SOCKET})`,
  "--node NAME": "ask the daemon of that node of a cluster, through kubectl exec",
  "--all-nodes": "ask those of all nodes",
  "--context NAME": "in which cluster, as kubectl takes it; only with --node or --all-nodes",
  "--kubeconfig FILE": "the same",
};

/** The socket to ask. @throws UsageError for options that choose a cluster, where no node of it is named */
export function socketOf({ socket, context, kubeconfig }: Partial<OptionValues<typeof DAEMON_OPTIONS>>): string {
  if ((context ?? kubeconfig) !== undefined)
    throw new UsageError(
      `--${context === undefined ? "kubeconfig" : "context"} is only for --node and --all-nodes`,
      "Without them the daemon on this host is asked.",
    );
  return socket ?? DEFAULT_INSPECT_SOCKET;
}

/** What to do when no daemon answers at a socket. */
export function silentDaemonHint(socketPath: string): string {
  const start = `Is the daemon running with --inspect-socket=${socketPath}, and are you its user?`;
  return socketPath === DEFAULT_INSPECT_SOCKET ? `${start} --socket names another.` : start;
}

/** How long an answer may pause: most queries go to nodes in trouble, whose daemons have to wait for a processor. */
const LIMIT_MS = 15_000;
/** A daemon that has not answered by then is not well. */
const SLOW_MS = 5_000;

/** The parsed answer to GET `path`. @param onSlow called once if there is none after five seconds. @throws UsageError if nothing answers, or anything but a daemon of this program that knows the path. */
export async function askDaemon(socketPath: string, path: string, onSlow: () => void = () => {}): Promise<unknown> {
  const slow = setTimeout(onSlow, SLOW_MS);
  const { status, body } = await answerOf(socketPath, path)
    .catch((error: unknown) => {
      if (error instanceof UsageError) throw error;
      throw new UsageError(`no answer at ${socketPath}: ${refusalText(error)}`, silentDaemonHint(socketPath));
    })
    .finally(() => clearTimeout(slow));
  const hint = "Use the kube-proxy program that the daemon was started from.";
  if (status === 404) {
    throw new UsageError(`the daemon at ${socketPath} does not know ${path}: it is of another version`, hint);
  }
  const said = jsonIn(body);
  if (said === undefined && status === 200 && /^[[{]/.test(body))
    throw new UsageError(`the answer at ${socketPath} is incomplete: the daemon ended meanwhile`);
  if (said === undefined)
    throw new UsageError(
      `what answers at ${socketPath} is not a daemon of this program, or is of another version`,
      hint,
    );
  if (status === 200) return said;
  throw new UsageError(`the daemon says: ${(said as { readonly error?: string } | null)?.error ?? "nothing"}`);
}

/** The same; undefined where no daemon of this program answers. */
export async function askIfThere(socketPath: string, path: string): Promise<unknown> {
  return await askDaemon(socketPath, path).catch((error: unknown) => {
    if (!(error instanceof UsageError)) throw error;
  });
}

/** The same, of a list. @param what it is of. @throws UsageError also for anything else, as another version may answer. */
export async function askList(socketPath: string, path: string, what: string): Promise<readonly unknown[]> {
  const list = await askDaemon(socketPath, path);
  if (Array.isArray(list)) return list;
  throw new UsageError(`the daemon did not answer with a list of ${what}: it is of another version`);
}

/**
 * One request and its response in HTTP/1.0, which has no chunks and ends with the connection. Node.js' HTTP client would take longer
 * to load than the daemon takes to answer.
 */
async function answerOf(socketPath: string, path: string) {
  const socket = connect(socketPath).setEncoding("utf8");
  const silence = `the daemon at ${socketPath} does not answer: nothing within ${LIMIT_MS / 1_000} seconds`;
  const hint = "It hangs, or the node is too busy for it.";
  socket.setTimeout(LIMIT_MS, () => socket.destroy(new UsageError(silence, hint)));
  socket.write(`GET ${path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
  let text = "";
  for await (const part of socket) text += part;
  // Status 0: this is not HTTP.
  const [, status = "0", body = ""] = /^HTTP\/1\.[01] (\d{3}).*?\r\n\r\n(.*)$/s.exec(text) ?? [];
  return { status: Number(status), body };
}
