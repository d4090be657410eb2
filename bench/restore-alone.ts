/** The time that iptables-restore needs for a text by itself: what everything else is measured against. */
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { binariesOf } from "../src/kernel/iptables/exec-iptables.ts";
import type { BackEnd } from "./figures.ts";
import type { Namespace } from "./namespace.ts";
import { toolsCpuMs } from "./processor-time.ts";

/** Milliseconds by the clock and of processor time. */
export interface RestoreTime {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** Rejects with the tool's complaint. Resolves to undefined when it was killed at the limit. */
export async function restoreAlone(
  { name, env }: Namespace,
  backEnd: BackEnd,
  textFile: string,
  limitMs: number,
): Promise<RestoreTime | undefined> {
  const tool = binariesOf("IPv4", backEnd).restore;
  const text = openSync(textFile, "r");
  const startMs = performance.now();
  const startCpuMs = toolsCpuMs();
  // `ip netns exec` becomes the tool: one process, and a signal to it reaches the tool.
  const child = spawn("ip", ["netns", "exec", name, tool, "--noflush", "--counters"], {
    stdio: [text, "ignore", "pipe"],
    env: { ...process.env, ...env },
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  closeSync(text);
  let complaint = "";
  child.stderr?.on("data", (chunk) => (complaint += String(chunk)));
  const [status, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (...end) => resolve(end));
  });
  if (signal === "SIGKILL") return undefined;
  if (status !== 0) throw new Error(`${tool}: ${complaint.trim()}`);
  return { wallMs: performance.now() - startMs, cpuMs: toolsCpuMs() - startCpuMs };
}
