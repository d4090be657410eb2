import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { signalChild } from "./child-process.ts";

const SUBJECT = fileURLToPath(new URL("testing/start-without-descriptors.ts", import.meta.url));

/**
 * Starts a bystander in the subject's process group, runs the subject, and checks that the bystander lives. It has its own
 * session and PID namespace, so that a stray signal to the group or to any other number hits nothing else.
 */
const SCENE = `sleep 300 & bystander=$!
ulimit -n "$1"
shift
"$@"
echo "status $?"
kill -0 $bystander && echo "bystander lives"
kill $bystander`;

function run(limit: number): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const words = ["--wait", "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", SCENE, "sh", String(limit)];
  const child = spawn("setsid", [...words, process.execPath, SUBJECT], { stdio: ["ignore", "pipe", "pipe"] });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      output[name] += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", () => resolve(output));
  });
}

const skip = process.getuid?.() === 0 ? false : "PID namespaces need root";
for (const limit of [40, 60]) {
  test(`with ${limit} descriptors, tools that cannot be started hurt nothing`, { skip }, async () => {
    const { stdout, stderr } = await run(limit);
    assert.match(stdout, /status 0\n/, stderr);
    assert.match(stdout, /bystander lives\n/, stderr);
    const [, report = "{}"] = /^(\{.*\})$/m.exec(stdout) ?? [];
    const { failed, stdout: echo } = JSON.parse(report);
    assert.ok(failed >= 8, `${failed} starts failed`);
    assert.equal(echo, "works again");
  });
}

test("only a child that runs is signalled", () => {
  const sent: unknown[] = [];
  const child = {
    pid: 17,
    exitCode: null,
    signalCode: null,
    kill(signal?: number | NodeJS.Signals) {
      sent.push(signal);
      return true;
    },
  };
  assert.equal(signalChild(child, "SIGKILL"), true);
  assert.equal(signalChild({ ...child, pid: 0 }, "SIGKILL"), false);
  assert.equal(signalChild({ ...child, pid: undefined }), false);
  assert.equal(signalChild({ ...child, exitCode: 0 }), false);
  assert.equal(signalChild({ ...child, signalCode: "SIGKILL" }), false);
  assert.deepEqual(sent, ["SIGKILL"]);
});
