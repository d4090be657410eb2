/**
 * Tests that need their own network namespace: a test file wraps its tests in {@link inNetns}, which runs the whole
 * file once more as a child process inside a fresh namespace and reports the child's outcome as one test.
 *
 *     inNetns(import.meta.url, { name: "conntrack" }, () => {
 *       test("…", async () => { … real kernel, own namespace, loopback up … });
 *     });
 *
 * Uses a process instead of `setns`, because calls from worker threads must also see the namespace.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { TEST_ENGINE } from "../batches/test-engine.ts";
import { netnsSkip } from "../needs/kernel-tools.ts";
import { stretched } from "./patience.ts";

export interface NetnsOptions {
  /** Part of the namespace's name, `kpts-NAME-PID`. */
  readonly name: string;
  /** Time limit for the child. @default 60 s */
  readonly timeoutMs?: number;
  /** Does first what needs the machine's own network. @returns why such tests cannot run here, or `false`. */
  readonly prepare?: () => Promise<string | false>;
}

const MARK = "KPTS_NETNS";

/** Registers `body`'s tests inside the namespace or, in the parent, the test that starts it. */
export function inNetns(moduleUrl: string, options: NetnsOptions, body: () => void): void {
  if (process.env[MARK] !== undefined) {
    body();
    return;
  }
  test(`in a network namespace: ${options.name}`, { skip: netnsSkip }, async (t) => {
    const reason = await options.prepare?.();
    if (typeof reason === "string") {
      t.skip(reason);
      return;
    }
    const namespace = `kpts-${options.name}-${process.pid}`;
    execFileSync("ip", ["netns", "add", namespace]);
    try {
      execFileSync("ip", ["-n", namespace, "link", "set", "lo", "up"]);
      const limitMs = stretched(options.timeoutMs ?? 60_000);
      const { status, output } = await runInside(namespace, fileURLToPath(moduleUrl), limitMs);
      assert.equal(status, 0, output);
    } finally {
      execFileSync("ip", ["netns", "delete", namespace]);
    }
  });
}

function runInside(namespace: string, file: string, timeoutMs: number): Promise<{ status: number; output: string }> {
  const env: NodeJS.ProcessEnv = { ...process.env, [MARK]: namespace };
  // Set by the runner that runs this file; the child must report in plain text, not in the runner's protocol.
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(
    "ip",
    ["netns", "exec", namespace, process.execPath, ...TEST_ENGINE, "--test-reporter=spec", file],
    {
      env,
      timeout: timeoutMs,
      killSignal: "SIGKILL",
    },
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => {
      // Failures before passes.
      output = stripVTControlCharacters(output);
      const at = Math.max(0, output.search(/^✖ failing tests:/m));
      resolve({ status: status ?? 1, output: `${output.slice(at)}${output.slice(0, at)}\n(${signal ?? status})` });
    });
  });
}
