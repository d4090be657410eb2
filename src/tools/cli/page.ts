/** `kube-proxy page`: the page of a running daemon in this user's browser, over its inspect socket; with `--node` through kubectl exec. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";
import { JSON_TYPE, reply, replyNotFound } from "../../agent/server/http/http-reply.ts";
import type { HttpHandler } from "../../agent/server/http/routes.ts";
import { Mutex } from "../../async/mutex.ts";
import { Agent, createServer, request } from "../../kernel/node-http.ts";
import { escapeLine } from "../../logging/escape.ts";
import { messageOf } from "../../logging/message-of.ts";
import { HELD_MS } from "../page/answers.ts";
import { guarded } from "../page/guard.ts";
import { readBounded, refusalText } from "./bounded-input.ts";
import { DAEMON_OPTIONS, silentDaemonHint, socketOf } from "./inspect-socket-client.ts";
import { EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import { command, commandLine, untilInterrupted } from "./subcommand-options.ts";

const { "--all-nodes": _, ...ONE_DAEMON } = DAEMON_OPTIONS;

const PAGE = commandLine("kube-proxy page", {}, [
  `Usage: kube-proxy page [--node NAME] [options]

Opens the page of a running daemon in the browser until Ctrl-C, and prints its address, which has a secret and is of this machine alone.
The page comes over the daemon's inspect socket, with --node through kubectl exec: it needs no address there, and only those see it who
may exec. Where there is no browser (no display, over ssh, not on a terminal), the address is only printed.

`,
  {
    ...ONE_DAEMON,
    "--port NUMBER": "the port of 127.0.0.1 (default: a free one)",
    "--stdio": "",
    "-h, --help": "this text",
  },
  `
Examples:
  kubectl kube-proxy page --node node-a
  ssh -t -L 10260:127.0.0.1:10260 node-a sudo kube-proxy page --port 10260

Exit status: 0 when Ctrl-C has ended it; 2 when the daemon does not answer or has no page, or the port is in use.
`,
]);

/** Where the page comes from. */
interface PageNode {
  readonly name: string;
  /** Connects to the standard streams of `kube-proxy page` with these words there. Destroying the stream ends that. */
  open(words: readonly string[]): Promise<PageLink>;
}

/** @property ended why, undefined if on purpose. */
interface PageLink {
  readonly stream: Duplex;
  readonly ended: Promise<UsageError | undefined>;
}

/** Runs `page`. @param node @default this host. */
export const page = command(PAGE, async ({ values }, output, _input, node?: PageNode) => {
  const { port = "0", socket, stdio } = values;
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535)
    throw new UsageError(`--port must be a number up to 65535, got "${port}"`);
  const path = socketOf(values);
  if (stdio) return await copySocket(path);
  const { name, open } = node ?? { name: "this host", open: async () => linkTo(path) };
  const words = ["--stdio", ...(socket === undefined ? [] : [`--socket=${socket}`])];
  return await untilInterrupted((signal) => serve(name, () => open(words), Number(port), output, signal));
});

/** Copies bytes between the socket and the standard streams. */
async function copySocket(path: string): Promise<number> {
  const { stream, ended } = linkTo(path);
  process.stdin.pipe(stream).pipe(process.stdout);
  const failure = await ended;
  process.stdin.destroy();
  if (failure !== undefined) throw failure;
  return EXIT_SUCCESS;
}

function linkTo(path: string): PageLink {
  const stream = connect(path);
  const ended = once(stream, "close").then(
    () => undefined,
    (error: unknown) => new UsageError(`no answer at ${path}: ${refusalText(error)}`, silentDaemonHint(path)),
  );
  return { stream, ended };
}

/** A daemon that has not answered by then is not well, or the connection is dead. */
const LIMIT_MS = 15_000;
/** What Node.js' HTTP client calls on a connection beyond what every stream has. */
const AS_SOCKET = { ref() {}, unref() {}, setKeepAlive() {}, setTimeout() {} };

/** Asks one question after the other over one connection. Once that has ended, the next question opens another. */
function pageClient(name: string, open: () => Promise<PageLink>) {
  const turns = new Mutex();
  let waiting = 0;
  /** A question that the daemon holds until it is ended. */
  let held: ClientRequest | undefined;
  let link: PageLink | undefined;
  const createConnection = () => link && Object.assign(link.stream, AS_SOCKET);
  const agent = Object.assign(new Agent({ keepAlive: true, maxSockets: 1 }), { createConnection });
  return {
    /** @throws UsageError if there is no answer */
    async ask(path: string, headers: IncomingHttpHeaders, signal: AbortSignal) {
      waiting += 1;
      held?.end();
      const turn = turns.run(async () => {
        if (link === undefined || link.stream.destroyed) link = await open();
        const isHeld = path.endsWith("&hold") && waiting === 1 && !signal.aborted;
        const limit = AbortSignal.timeout(LIMIT_MS + (isHeld ? HELD_MS : 0));
        const own = { ...headers, connection: "keep-alive", ...(isHeld && { "transfer-encoding": "chunked" }) };
        // It may fail again while it is destroyed.
        const asking = request({ agent, path, headers: own, signal: limit }).on("error", () => {});
        const end = (): void => void asking.end();
        if (isHeld) {
          held = asking;
          asking.flushHeaders();
          signal.addEventListener("abort", end);
        } else end();
        try {
          const [answer] = (await once(asking, "response")) as [IncomingMessage];
          end();
          return { status: answer.statusCode, headers: answer.headers, bytes: await readBounded(answer) };
        } catch {
          link.stream.destroy();
          const ended = await link.ended;
          const reason = limit.aborted ? `nothing within ${LIMIT_MS / 1_000} s` : "the connection has ended";
          throw (!limit.aborted && ended) || new UsageError(`no answer from ${name}: ${reason}`);
        } finally {
          held = undefined;
          signal.removeEventListener("abort", end);
        }
      }, signal);
      return await turn.finally(() => {
        waiting -= 1;
      });
    },
    /** Ends the connection, and what was started for it. */
    async close() {
      link?.stream.destroy();
      await link?.ended;
    },
  };
}

async function serve(
  name: string,
  open: () => Promise<PageLink>,
  port: number,
  output: Output,
  signal: AbortSignal,
): Promise<number> {
  const client = pageClient(name, open);
  const [secret = "", entry = ""] = [1, 2].map(() => randomBytes(16).toString("base64url"));
  const handler = guarded(forwarding(client, secret, entry, output));
  const server = createServer((asked, response) => void handler(asked, response));
  signal.addEventListener("abort", () => void client.close());
  try {
    const { status, headers } = await client.ask("/", { host: "localhost" }, signal);
    if (status !== 200 || !/^text\/html/.test(headers["content-type"] ?? ""))
      throw new UsageError(`the daemon on ${name} has no page: it is of an older version`);
    await once(server.listen(port, "127.0.0.1"), "listening").catch((error: unknown) => {
      throw new UsageError(`the page cannot be served: ${messageOf(error)}`);
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    output.out(`${url}${secret}/\n`);
    output.err(`The page of ${name}; Ctrl-C ends it.\n`);
    const [browser, ...words] = output.terminal?.width === undefined ? [] : browserOf(process.platform, process.env);
    // Other users can read command lines: this address leads to the page once. The browser outlives this program.
    const own = { stdio: "ignore", detached: true } as const;
    if (browser !== undefined)
      spawn(browser, [...words, url + entry], own)
        .once("error", () => {})
        .unref();
    if (!signal.aborted) await once(signal, "abort");
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    server.close();
    server.closeAllConnections();
    await client.close();
  }
  return EXIT_SUCCESS;
}

/** @param secret the first part of the page's path. @param entry a path that leads there once. */
function forwarding(client: ReturnType<typeof pageClient>, secret: string, entry: string, output: Output): HttpHandler {
  let isEntered = false;
  let said = "";
  return async ({ url = "/", headers: asked }, response) => {
    if (url === `/${entry}` && !isEntered) {
      isEntered = true;
      response.writeHead(302, { Location: `/${secret}/` }).end();
    } else if (url.startsWith(`/${secret}/`)) {
      const gone = new AbortController();
      response.once("close", () => gone.abort());
      try {
        const { status = 502, headers, bytes } = await client.ask(url.slice(secret.length + 1), asked, gone.signal);
        response.writeHead(status, headers).end(bytes);
      } catch (error) {
        const why = messageOf(error);
        // The page asks again every few seconds.
        if (!gone.signal.aborted && why !== said) output.err(`${escapeLine(why)}; the page tries again.\n`);
        said = why;
        reply(response, 502, JSON_TYPE, JSON.stringify({ error: why }));
      }
    } else replyNotFound(response);
  };
}

/** The command that opens an address in this user's browser; empty: there is none to see. */
export function browserOf(platform: NodeJS.Platform, env: NodeJS.ProcessEnv): readonly string[] {
  const has = (...names: string[]): boolean => names.some((name) => (env[name] ?? "") !== "");
  if (has("SSH_CONNECTION", "SSH_TTY")) return [];
  if (platform === "win32") return ["cmd", "/c", "start", ""];
  if (platform === "darwin") return ["open"];
  return has("DISPLAY", "WAYLAND_DISPLAY") ? ["xdg-open"] : [];
}
