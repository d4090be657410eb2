/** Processes of a bench: the other side of {@link Bench.worker}, and programs that answer lines with lines. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { signalChild } from "../src/kernel/child-process.ts";
import { KUBE_PROXY } from "../testkit/needs/built-program.ts";
import { atExit, type Namespace, withNamespace } from "./namespace.ts";

const RUN = fileURLToPath(new URL("./run.ts", import.meta.url));

function startScript(): string {
  return readFileSync(KUBE_PROXY, "utf8");
}

/** The JavaScript engine options that the daemon runs with, from the one place that has them. */
export function engineOptions(): string[] {
  const options = /^node_options="([^"]*)"$/m.exec(startScript())?.[1];
  if (options === undefined) throw new Error('bin/kube-proxy has no line node_options="…"');
  return options.split(" ").filter((option) => option !== "");
}

/** What the daemon tells the C library about memory. */
export function memoryEnvironment(): Readonly<Record<string, string>> {
  const settings = startScript().matchAll(/^export (MALLOC_\w+)="\$\{\1:-(\d+)\}"$/gm);
  return Object.fromEntries(Array.from(settings, ([, name = "", value = ""]) => [name, value]));
}

export interface LineProcess {
  readonly pid: number;
  /** Its next line of output. */
  next(): Promise<string>;
  tell(task: unknown): void;
  /** Sends a line, and waits for the next line. */
  ask<Answer>(task: unknown): Promise<Answer>;
  /** Ends its input and waits for it to exit. @returns its last lines. */
  finish(): Promise<readonly string[]>;
  end(): void;
}

/** Starts a command, in the given namespace, if any; it ends with the bench. */
export function startLines(words: readonly string[], namespace?: string, env: NodeJS.ProcessEnv = {}): LineProcess {
  const all = [...(namespace === undefined ? [] : ["nsenter", `--net=/run/netns/${namespace}`]), ...words];
  const [command = "", ...args] = all;
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, ...env } });
  const end = atExit(() => void signalChild(child, "SIGKILL"));
  child.stdin.on("error", () => {});
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`${all.join(" ")} ended`);
    return value;
  };
  const tell = (task: unknown): void => void child.stdin.write(`${JSON.stringify(task)}\n`);
  return {
    pid: child.pid ?? 0,
    next,
    tell,
    async ask(task) {
      tell(task);
      return JSON.parse(await next());
    },
    async finish() {
      child.stdin.end();
      const last: string[] = [];
      for await (const line of { [Symbol.asyncIterator]: () => lines }) last.push(line);
      return last;
    },
    end,
  };
}

/** Answers each line of standard input with a line; first reports that it is ready. */
export async function answerLines(answer: (task: never) => unknown): Promise<void> {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line) as never))}\n`); // the asker's own protocol
  }
}

/** Starts a bench's worker, in a process like the daemon's that can also be told to collect garbage. */
export function startWorker(bench: string, task: object, { name, env }: Partial<Namespace> = {}): LineProcess {
  const node = [process.execPath, "--expose-gc", ...engineOptions(), RUN];
  return startLines([...node, "--worker", bench, JSON.stringify(task)], name, { ...memoryEnvironment(), ...env });
}

/** Runs a bench's worker, in its own namespace unless it belongs on the host. @returns its figures. */
export async function inWorker<Figures>(bench: string, task: object, isOnHost = false): Promise<Figures> {
  const run = async (namespace?: Namespace): Promise<Figures> => {
    const worker = startWorker(bench, task, namespace);
    try {
      return JSON.parse(await worker.next());
    } finally {
      worker.end();
    }
  };
  return await (isOnHost ? run() : withNamespace(run));
}
