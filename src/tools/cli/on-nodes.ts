/**
 * `--node NAME` and `--all-nodes` of the commands that query a running daemon: `kubectl exec` runs the command in the node's pod, with
 * the rights, the context and the plugins of the user's own kubectl. The daemon's socket stays closed to others.
 */
import { appendFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { Duplex, Readable, type Writable } from "node:stream";
import { finished, pipeline } from "node:stream/promises";
import type { StatusReport } from "../../agent/daemon/inspect-report.ts";
import { agoText } from "../../agent/daemon/status-words.ts";
import { jsonIn } from "../../logging/attempt.ts";
import { messageOf } from "../../logging/message-of.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { tableText } from "../explain/table.ts";
import { bounded, readBounded } from "./bounded-input.ts";
import { isForbidden, runKubectl, withoutLog } from "./kubectl.ts";
import { EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_SUCCESS, inspecting, type Output, painted, UsageError } from "./output.ts";
import { takeOptions } from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";
import { openNew } from "./sysdump/archive.ts";

const NAMESPACE = "kube-system";
/** The labels of kubeadm and of deploy/trial. */
const SELECTOR = "k8s-app in (kube-proxy,kube-proxy-ts)";
const PROGRAM = "/usr/local/bin/kube-proxy";
/** How many nodes to query at a time: each takes a connection through the API server. */
const AT_ONCE = 16;
/** A dead kubelet must not delay the answers of other nodes. */
const LIMIT_MS = 30_000;
/** The most that one node may answer, as text, in a line or as an archive: the node may be in wrong hands. */
const MOST_BYTES = 32 * 2 ** 20;
/** The reason if kubectl was killed at the limit, since it has printed none. */
const SILENT = `no answer within ${LIMIT_MS / 1_000} s`;
const RIGHTS = `This needs the rights to list pods and to create pods/exec in the namespace ${NAMESPACE}.`;

const OPTIONS = { "--node NAME": "", "--all-nodes": "", "--context NAME": "", "--kubeconfig FILE": "" };

/** Which daemons a command line queries, and the words that go to them. */
type NodesAsked = ReturnType<typeof takeNodes>;
type NodePod = ReturnType<typeof readPods>[number];

/**
 * Whether a command line with `--node` or `--all-nodes` goes to the daemons. For `sysdump`, `prove` and `diff` the node may also be the one
 * to look from: these go to the daemons if kubectl started the program and no objects or rules are given.
 */
export function isForNodes(command: string, argv: readonly string[], env: NodeJS.ProcessEnv): boolean {
  // With objects it looks at this host's connections.
  if (command === "flows" && argv.some((word) => /^-f|^--filename(?:=|$)/.test(word)))
    return argv.includes("--all-nodes");
  if (WITH_CONTEXT[command] === undefined) return true;
  if (command === "diff" && !argv.includes("--kernel")) return false;
  return env.KUBE_PROXY_TS_PLUGIN === "1" && !argv.some((word) => /^-f|^--(?:filename|dump|modes)(?:=|$)/.test(word));
}

/** Takes `--node` (undefined: all), `--all-nodes` and kubectl's flags out of a command line. @throws UsageError */
function takeNodes(command: string, argv: readonly string[]) {
  const { values, rest } = takeOptions(argv, OPTIONS);
  const { node, "all-nodes": isAll, ...own } = values;
  if (node !== undefined && isAll) throw new UsageError("--node and --all-nodes exclude each other");
  return { command, node, kubectl: Object.entries(own).map(([name, value]) => `--${name}=${value}`), rest };
}

/**
 * Runs a command in the pods of the daemons. @param command `status`, `services`, … @returns for one node the command's own exit status; for all nodes 0 if each returned 0, 1 if
 * any did not, and 2 if none could be queried.
 */
export async function onNodes(command: string, argv: readonly string[], output: Output): Promise<number> {
  return await inspecting(output, async () => {
    const asked = takeNodes(command, argv);
    if (command === "page") return await pageOf(asked, output);
    const pods = await podsOf(asked);
    if (command === "sysdump") return await fetchArchives(asked, pods, output);
    const exported = command === "flows" ? await exportFlows(asked, pods, output) : undefined;
    if (exported !== undefined) return exported;
    if (asked.node !== undefined) return await inPod(asked, pods[0], output);
    if (command === "monitor" || asked.rest.includes("--watch")) {
      const width = Math.max(...pods.map(({ node }) => node.length));
      const ends = pods.map((pod) => inPod(asked, pod, output, `${pod.node.padEnd(width)}  `));
      return Math.max(...(await Promise.all(ends)));
    }
    if (command === "status") return await allStates(asked, pods, output);
    const all = await answers(asked, pods, output);
    for (const { pod, text: answer, refusal } of all) {
      output.out(safe(`${pod.node}:\n${answer}`));
      if (refusal !== undefined) output.err(safe(`${pod.node}: ${refusal}\n`));
    }
    return statusOf(all, output);
  });
}

/** @throws UsageError if there is no such pod, with the nearest node name, or if kubectl fails. */
async function podsOf({ node, kubectl }: NodesAsked): Promise<readonly [NodePod, ...NodePod[]]> {
  const running = ["--selector", SELECTOR, "--field-selector", "status.phase=Running"];
  const args = [...kubectl, "get", "pods", "--namespace", NAMESPACE, ...running, "--output", `jsonpath=${COLUMNS}`];
  const [status, stdout, stderr] = await runKubectl(args, text, text, LIMIT_MS);
  if (status !== 0) {
    const hint = isForbidden(stderr) ? RIGHTS : undefined;
    throw new UsageError(`kubectl get pods: ${withoutLog(stderr) || SILENT}`, hint);
  }
  const pods = readPods(stdout);
  const [first, ...more] = node === undefined ? pods : pods.filter((pod) => pod.node === node);
  if (first !== undefined) return [first, ...more];
  if (node === undefined) throw new UsageError(`no pod with the label ${SELECTOR} runs in ${NAMESPACE}`);
  const outside = "If it runs outside of pods, run this command on its node, without --node.";
  const hint = didYouMean(node, new Set(pods.map((pod) => pod.node))) ?? outside;
  throw new UsageError(`no pod of kube-proxy runs on node "${node}" (${SELECTOR} in ${NAMESPACE})`, hint);
}

const COLUMNS = '{range .items[*]}{.spec.nodeName} {.metadata.name} {.spec.containers[*].name}{"\\n"}{end}';

function readPods(lines: string) {
  const pods = lines.split("\n").flatMap((line) => {
    const [node, pod, ...containers] = line.split(" ");
    const container = containers.find((name) => name === "kube-proxy") ?? containers[0];
    return node === undefined || pod === undefined || container === undefined ? [] : [{ node, pod, container }];
  });
  return pods.sort((a, b) => (a.node < b.node ? -1 : 1));
}

/** Commands that look at the node from its pod, and the flags that each needs there. */
const WITH_CONTEXT: Readonly<Record<string, readonly string[]>> = {
  diff: [],
  prove: ["--kernel"],
  sysdump: ["--output=-"],
};
/** Where every deployment of this program mounts its configuration. */
const IN_POD = ["--config=/var/lib/kube-proxy/config.conf", "--kubeconfig=/var/lib/kube-proxy/kubeconfig.conf"];

function podCommand({ command, kubectl, rest }: NodesAsked, { node, pod, container }: NodePod) {
  const own = WITH_CONTEXT[command];
  const context = own === undefined ? [] : [...own, ...IN_POD, `--node=${node}`];
  const words = [PROGRAM, command, ...context, ...rest];
  const streams = command === "page" ? ["--stdin"] : [];
  return [...kubectl, "exec", "--namespace", NAMESPACE, pod, "--container", container, ...streams, "--", ...words];
}

/** Opens the page of a node: through a pod of each moment, as another may replace it. */
async function pageOf(asked: NodesAsked, output: Output): Promise<number> {
  const { node: name } = asked;
  if (name === undefined) throw new UsageError("page shows one node: name it with --node");
  const open = async (words: readonly string[]) => {
    const [pod] = await podsOf(asked);
    const opened = Promise.withResolvers<Duplex>();
    const use = async (readable: Readable, writable: Writable) => {
      const stream = Duplex.from({ readable, writable }).on("error", () => {});
      opened.resolve(stream);
      // Writing to a kubectl that has just ended fails, too: it is not killed before it has said why.
      await finished(stream, { writable: false }).catch(({ code }) => {
        if (code !== "EPIPE" && code !== "ECONNRESET") throw new Error(code);
      });
      stream.destroy();
    };
    const ending = runKubectl(podCommand({ ...asked, rest: [...words] }, pod), use, text);
    const ended = ending.then(
      ([status, , said]) => (status === EXIT_SUCCESS ? undefined : endOf(name, said)),
      () => undefined,
    );
    return { stream: await opened.promise, ended };
  };
  return await (await import("./page.ts")).page(asked.rest, output, undefined, { name, open });
}

/** @param said by kubectl, and by the program in the pod. */
function endOf(name: string, said: string): UsageError {
  const [first = ""] = withoutLog(said)
    .replace(/^error: /i, "")
    .split("\n");
  if (/^unknown (?:command|flag|shorthand)/.test(first))
    return new UsageError(`the kube-proxy on ${name} has no page: it is of an older version, or another program`);
  const reason = first === "" ? "" : `: ${first}`;
  return new UsageError(`the connection to ${name} has ended${reason}`, isForbidden(said) ? RIGHTS : undefined);
}

/** Writes the nodes' archives to local files, as `sysdump` does. @returns the highest exit status. */
async function fetchArchives(asked: NodesAsked, pods: readonly NodePod[], output: Output): Promise<number> {
  const { values, rest } = takeOptions(asked.rest, { "-o, --output FILE": "", "--force": "" });
  if (values.output !== undefined && asked.node === undefined)
    throw new UsageError("-o names one archive, and each node has its own", "Without it each is named for its node.");
  const fetch = async (pod: NodePod): Promise<number> => {
    const path = values.output ?? `kube-proxy-sysdump-${pod.node}.tar.gz`;
    const file = path === "-" ? undefined : await openNew(path, values.force);
    const target = file?.createWriteStream() ?? process.stdout;
    let isWhole = false;
    try {
      const store = (archive: Readable) =>
        pipeline(bounded(archive, MOST_BYTES), target, { end: file !== undefined }).catch((error: unknown) => {
          throw new UsageError(`cannot write ${path}: ${messageOf(error)}`);
        });
      const [status, , said] = await runKubectl(podCommand({ ...asked, rest }, pod), store, text);
      output.err(safe(said));
      isWhole = status === EXIT_SUCCESS;
      if (isWhole && file !== undefined) output.out(safe(`${path}\n`));
      return status;
    } finally {
      // No file is left for an incomplete archive.
      if (!isWhole && file !== undefined) await rm(path, { force: true });
    }
  };
  return Math.max(...(await forPods(pods, 1, (pod) => inspecting(output, () => fetch(pod)), output)));
}

/** `flows --export FILE`: appends the lines of all nodes to a local file. @returns undefined if no file was named. */
async function exportFlows(asked: NodesAsked, pods: readonly NodePod[], output: Output): Promise<number | undefined> {
  const { values, rest } = takeOptions(asked.rest, { "--export FILE": "", "-f, --filename FILE": "" });
  if (values.filename !== undefined)
    throw new UsageError("-f reads files here, but flows runs in the pod: leave -f out");
  const { export: path = "-" } = values;
  if (path === "-" || path === "otlp-http") return undefined;
  const out = (lines: string): void => {
    try {
      appendFileSync(path, lines, { mode: 0o600 });
    } catch (error) {
      throw new UsageError(`cannot write to ${path}: ${messageOf(error)}`);
    }
  };
  out("");
  // A watch does not end by itself: no node can wait for it.
  const atOnce = rest.includes("--watch") ? pods.length : AT_ONCE;
  const ends = await forPods(pods, atOnce, (pod) => {
    const mark = asked.node === undefined ? `${pod.node}: ` : "";
    const err = (said: string): void => output.err(mark + said);
    return inPod({ ...asked, rest: ["--export=-", ...rest] }, pod, { out, err });
  });
  return Math.max(...ends);
}

/** Runs the command and passes on its output as it arrives. @param mark precedes each line. @returns its exit status. */
async function inPod(asked: NodesAsked, pod: NodePod, output: Output, mark = ""): Promise<number> {
  const lines = (print: (said: string) => void) => async (stream: Readable) => {
    const input = Readable.from(bounded(stream, MOST_BYTES, true));
    // An interface of lines ends without an error where its input fails.
    let failure: Error | undefined;
    input.once("error", (error) => {
      failure = error;
    });
    for await (const line of createInterface({ input })) print(safe(`${mark}${line}\n`));
    if (failure !== undefined) throw failure;
  };
  return await inspecting({ ...output, err: (said) => output.err(mark + said) }, async () => {
    return (await runKubectl(podCommand(asked, pod), lines(output.out), lines(output.err)))[0];
  });
}

type NodeAnswer = Awaited<ReturnType<typeof answers>>[number];

async function answers(asked: NodesAsked, pods: readonly NodePod[], output: Output) {
  const answerOf = async (pod: NodePod) => {
    try {
      const [status, stdout, stderr] = await runKubectl(podCommand(asked, pod), text, text, LIMIT_MS);
      // Errors of kubectl, and of a command that could not answer, leave standard output empty.
      const reason = withoutLog(stderr).split("\n")[0] || SILENT;
      return { pod, status, text: stdout, refusal: stdout === "" && status !== 0 ? reason : undefined };
    } catch (error) {
      // Of this node alone: what the others answer stays.
      if (!(error instanceof UsageError)) throw error;
      return { pod, status: EXIT_FAILURE, text: "", refusal: error.message };
    }
  };
  return await forPods(pods, AT_ONCE, answerOf, output);
}

const text = async (stream: Readable): Promise<string> => (await readBounded(stream, MOST_BYTES)).toString("utf8");

/** Runs something for each pod, for some at a time. @returns the results in the order of the pods. */
async function forPods<T>(
  pods: readonly NodePod[],
  atOnce: number,
  run: (pod: NodePod) => Promise<T>,
  { progress }: Partial<Output> = {},
): Promise<readonly T[]> {
  const results: T[] = new Array(pods.length);
  const left = pods.entries();
  let done = 0;
  const take = async () => {
    for (const [at, pod] of left) {
      await progress?.({ what: "nodes", done, total: pods.length });
      results[at] = await run(pod);
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, pods.length) }, take));
  return results;
}

/** One line per node, those with problems first. */
async function allStates(asked: NodesAsked, pods: readonly NodePod[], output: Output): Promise<number> {
  const all = await answers({ ...asked, rest: ["-o", "json"] }, pods, output);
  const rows = all.map((answer) => ({ answer, report: reportOf(answer) }));
  if (/(^| )(-o|--output)[ =]?json( |$)/.test(asked.rest.join(" "))) {
    const data = rows.map(({ answer, report }) => ({ ...report, node: answer.pod.node, refusal: answer.refusal }));
    output.out(jsonText(data));
    return statusOf(all, output);
  }
  rows.sort((a, b) => Number(a.answer.status === 0) - Number(b.answer.status === 0));
  const head = ["NODE", "MODE", "STATE", "PORTS", "LAST SYNC", "WHAT IS WRONG"];
  const lines = rows.map(({ answer, report }) => [answer.pod.node, ...stateCells(report, answer.refusal)]);
  output.out(painted(safe(tableText([head, ...lines], "", output.terminal?.width)), output.terminal));
  const well = all.filter(({ status }) => status === 0).length;
  output.out(`healthy nodes: ${well} of ${all.length}\n`);
  return statusOf(all, output);
}

function reportOf({ text: answer, refusal }: NodeAnswer): Partial<StatusReport> | undefined {
  const report = refusal === undefined ? jsonIn(answer) : undefined;
  return typeof report === "object" && report !== null ? report : undefined;
}

function stateCells(report: Partial<StatusReport> | undefined, refusal: string | undefined): readonly string[] {
  if (report === undefined) return ["?", "no answer", "", "", refusal ?? "the answer is of another program"];
  const { mode = "?", isHealthy, families = [], failures = [] } = report;
  const ages = families.flatMap(({ lastSyncAgeMs }) => (typeof lastSyncAgeMs === "number" ? [lastSyncAgeMs] : []));
  const [first, ...more] = failures;
  const wrong =
    first === undefined ? "" : `${first.subject}: ${first.reason}${more.length > 0 ? ` (+${more.length})` : ""}`;
  return [
    mode,
    isHealthy === true ? "healthy" : "NOT healthy",
    String(families.reduce((sum, { servicePorts }) => sum + servicePorts, 0)),
    ages.length === 0 ? "never" : agoText(Math.min(...ages)),
    wrong,
  ];
}

function statusOf(all: readonly NodeAnswer[], output: Output): number {
  const silent = all.filter(({ refusal }) => refusal !== undefined);
  if (silent.some(({ refusal }) => isForbidden(refusal))) output.err(`${RIGHTS}\n`);
  if (silent.length === all.length) return EXIT_BAD_INPUT;
  return all.every(({ status }) => status === 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
