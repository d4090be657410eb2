/** Starts a worker in a namespace and reads its reports. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { StepReport, WorkerTask } from "./figures.ts";
import type { Namespace } from "./namespace.ts";

const WORKER = fileURLToPath(new URL("./worker.ts", import.meta.url));

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
  const command = ["netns", "exec", name, process.execPath, "--expose-gc", WORKER, JSON.stringify(task)];
  const child = spawn("ip", command, {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
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
