/** Runs the program as a shell would, with limits. */
import { spawn } from "node:child_process";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { stretched } from "../../testkit/support/patience.ts";

const LIMIT_MS = 30_000;

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Stops reading the output after this many characters, as `head` does. */
  readonly readOnly?: number;
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** @default `bin/kube-proxy` of this checkout */
  readonly program?: string;
}

/** Runs `kube-proxy ARGS` to its end. */
export function runKubeProxy(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  const { readOnly, cwd, env, program = KUBE_PROXY } = options;
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    timeout: stretched(LIMIT_MS),
    killSignal: "SIGKILL",
    ...(cwd !== undefined && { cwd }),
    ...(env !== undefined && { env: { ...process.env, ...env } }),
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    if (readOnly !== undefined && stdout.length >= readOnly) child.stdout.destroy();
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, stdout, stderr }));
  });
}
