/** `npm start`: a node, pods and a client in namespaces, the real proxy, and a table of what requests meet. */
import { stat } from "node:fs/promises";
import { relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { ProxyMode } from "../src/modes/registry.ts";
import { missingForMode, missingForTopology } from "../testkit/net/kernel-capabilities.ts";
import { type DemoOptions, helpText, parseDemoArguments } from "./arguments.ts";
import { runLive } from "./live.ts";
import { runOnce } from "./once.ts";
import { Session } from "./session.ts";
import { Browser } from "./view/browser.ts";
import { pictureOf, printSettled, throttled } from "./view/live-view.ts";
import { Screen } from "./view/screen.ts";
import { type Line, printLine } from "./view/styled-line.ts";

const examples = fileURLToPath(new URL("../examples", import.meta.url));

/**
 * Runs the demo until Ctrl-C, or with `--once` until everything is verified. Removes everything it made.
 *
 * @param argv the arguments after the command's name.
 * @param build brings the program up to date, after all other checks have passed. @returns whether it worked
 * @returns the exit status: 0, or 1 for bad arguments, something missing, a failure, or (`--once`) a wrong answer.
 */
export async function runDemo(
  argv: readonly string[],
  build: () => Promise<boolean> = async () => true,
): Promise<number> {
  const parsed = parseDemoArguments(argv);
  if (parsed.kind === "help") {
    process.stdout.write(helpText);
    return 0;
  }
  if (parsed.kind === "error") return fail(parsed.message);
  const { options } = parsed;
  const manifests = resolve(options.manifests ?? examples);
  if ((await stat(manifests).catch(() => undefined)) === undefined) {
    return fail(`--manifests ${options.manifests}: there is no such file or folder`);
  }
  const missing = { forTopology: await missingForTopology(), forMode: await missingForMode(options.mode) };
  if (missing.forTopology.length + missing.forMode.length > 0) {
    return fail(cannotRunText(missing, manifests, options.mode));
  }
  if (!(await build())) return fail("the build failed: see the errors above");

  const stop = new AbortController();
  const onSignal = (): void => stop.abort();
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  try {
    return await runIn(options, manifests, stop);
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error));
  } finally {
    for (const signal of signals) process.off(signal, onSignal);
  }
}

function fail(message: string): number {
  process.stderr.write(`demo: ${message}\n`);
  return 1;
}

interface Missing {
  readonly forTopology: readonly string[];
  readonly forMode: readonly string[];
}

function cannotRunText({ forTopology, forMode }: Missing, manifests: string, mode: ProxyMode): string {
  const demo = `node_modules/.bin/node demo/main.ts --once --mode ${mode}`;
  return [
    "this machine cannot run the demo:",
    ...[...forTopology, ...forMode].map((line) => `  - ${line}`),
    "What the proxy would program can be shown anywhere, without root:",
    `  bin/kube-proxy render --mode ${mode} -f ${relative(process.cwd(), manifests) || "."}`,
    ...(forMode.length > 0
      ? [
          "A virtual machine with another kernel (x86-64, see testkit/vm/README.md) may run it with",
          `  node_modules/.bin/node testkit/vm/run.ts --exec ${demo}`,
        ]
      : []),
  ].join("\n");
}

async function runIn(options: DemoOptions, manifests: string, stop: AbortController): Promise<number> {
  const output = process.stdout;
  if (output.isTTY) output.write("building a node, pods and a client in network namespaces…");
  let session: Session;
  try {
    session = await Session.start({ ...options, manifests });
  } finally {
    if (output.isTTY) output.write("\r\x1b[K");
  }
  let screen: Screen | undefined;
  try {
    if (options.once) return await runOnce(session, writeLine, stop.signal);
    if (output.isTTY) {
      const browser = new Browser();
      const opened = new Screen(output, process.stdin, (key) => {
        if (browser.press(key) === "quit") stop.abort();
      });
      screen = opened;
      await runLive(
        session,
        throttled((view) => opened.show((size) => pictureOf(view, session, browser, size))),
        stop.signal,
      );
    } else {
      output.write(`The proxy's own page, in a browser: ${session.page.url}\n`);
      output.write(`Commands that ask it: bin/kube-proxy services --socket ${session.proxy.socket}\n`);
      await runLive(session, printSettled(session, writeLine), stop.signal);
    }
    return 0;
  } finally {
    screen?.close();
    await session.end();
    if (!options.once) output.write(`The demo's namespaces, processes and rules are gone.\n${hintOf(options)}`);
  }
}

/** What to try next, for those who have seen the examples. */
function hintOf({ manifests }: DemoOptions): string {
  if (manifests !== undefined) return "";
  return [
    "With the services of your cluster:",
    "  kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > cluster.yaml",
    "  npm start -- --manifests cluster.yaml\n",
  ].join("\n");
}

function writeLine(line: Line): void {
  process.stdout.write(`${printLine(line, process.stdout.isTTY && process.stdout.hasColors())}\n`);
}
