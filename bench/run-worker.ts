/** Starts a worker in a namespace and reads its reports. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { StepReport, WorkerTask } from "./figures.ts";
import type { Namespace } from "./namespace.ts";

const WORKER = fileURLToPath(new URL("./worker.ts", import.meta.url));

function startScript(): string {
  return readFileSync(new URL("../bin/kube-proxy", import.meta.url), "utf8");
}

/** The options of the JavaScript engine that the daemon runs with, from the one place that has them. */
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

/**
 * @param limitMs for the whole worker: a last resort, its steps have limits of their own.
 * @param onReport told each step as it ends.
 */
export async function runWorker(
  { name, env }: Namespace,
  task: WorkerTask,
  limitMs: number,
  onReport: (report: StepReport) => void,
): Promise<void> {
  const node = [process.execPath, "--expose-gc", ...engineOptions()];
  const command = ["netns", "exec", name, ...node, WORKER, JSON.stringify(task)];
  const child = spawn("ip", command, {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...memoryEnvironment(), ...env },
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  const ended = new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(signal ?? String(status)));
  });
  for await (const line of createInterface({ input: child.stdout })) onReport(JSON.parse(line));
  const outcome = await ended;
  if (outcome === "SIGKILL") onReport({ step: "cut off", what: "worker", reason: `no end after ${limitMs / 1000} s` });
  else if (outcome !== "0") onReport({ step: "failed", what: "worker", reason: `ended with ${outcome}` });
}
