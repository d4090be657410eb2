import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { signalChild } from "../child-process.ts";

// Every iptables process that ends raises SIGCHLD. A poll that a signal interrupts must not be taken for "readable":
// the read would never return, and the whole program would hang.
test("signals while looking for an answer do not block the process", async () => {
  const subject = fileURLToPath(new URL("testing/dump-under-signals.ts", import.meta.url));
  const child = spawn(process.execPath, [subject], {
    stdio: ["ignore", "pipe", "inherit"],
    timeout: 20_000,
    killSignal: "SIGKILL",
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const ended = once(child, "exit");
  await once(child.stdout, "data");
  while (child.exitCode === null && child.signalCode === null) {
    for (let count = 0; count < 500; count++) signalChild(child, "SIGUSR2");
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.deepEqual(await ended, [0, null]);
  assert.equal(output, "ready\ndone\n");
});
