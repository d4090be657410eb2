import assert from "node:assert/strict";
import { test } from "node:test";
import { ExecError, execProcess, withSystemDirectories } from "./process.ts";

test("both outputs and the exit status of a tool come back", async () => {
  const script = "process.stdout.write('out'); process.stderr.write('err'); process.exitCode = 3";
  assert.deepEqual(await execProcess(process.execPath, ["-e", script]), { status: 3, stdout: "out", stderr: "err" });
});

test("arguments reach the tool as they are, without a shell", async () => {
  const { stdout } = await execProcess("printf", ["%s", "$HOME; `id` \"x\" 'y'"]);
  assert.equal(stdout, "$HOME; `id` \"x\" 'y'");
});

test("standard input is fed in order, and the event loop turns while a large payload is written", async () => {
  const line = `${"x".repeat(99)}\n`;
  let turns = 0;
  const ticking = setInterval(() => {
    turns += 1;
  }, 0);
  function* lines(): Iterable<string> {
    for (let i = 0; i < 100_000; i += 1) yield line;
    yield "ü€😀".repeat(200_000);
  }
  const { status, stdout } = await execProcess("wc", ["-c"], { stdin: lines() });
  clearInterval(ticking);
  assert.equal(status, 0);
  assert.equal(Number(stdout), 100_000 * 100 + 200_000 * 9);
  assert.ok(turns >= 10, `the event loop turned ${turns} times`);
});

test("text outside ASCII survives the way through a tool", async () => {
  const text = "😀".repeat(300_001);
  const { stdout } = await execProcess("cat", [], { stdin: ["é", text] });
  assert.ok(stdout === `é${text}`);
});

test("a tool that stops reading early is no error of its own", async () => {
  const { status } = await execProcess("sh", ["-c", "exec 0<&-; exit 7"], {
    stdin: Array.from({ length: 200 }, () => "y".repeat(50_000)),
  });
  assert.equal(status, 7);
});

test("without input a tool reads end of file at once", async () => {
  assert.deepEqual(await execProcess("cat", []), { status: 0, stdout: "", stderr: "" });
});

test("a payload that throws half-way kills the tool and rejects", async () => {
  function* broken(): Iterable<string> {
    yield "a".repeat(100_000);
    throw new RangeError("bad rule");
  }
  await assert.rejects(execProcess("cat", [], { stdin: broken() }), /bad rule/);
});

test("a missing tool is named together with its Debian package", async () => {
  // A folder of PATH that this user may not enter would be another error.
  await assert.rejects(
    execProcess("iptables-legacy-nowhere", [], { env: { PATH: "/usr/bin:/bin" } }),
    (error: unknown) => {
      assert.ok(error instanceof ExecError);
      assert.equal(error.code, "missing_tool");
      assert.match(error.message, /iptables-legacy-nowhere: no such program.*package "iptables"/);
      return true;
    },
  );
});

test("a tool that outlives its time limit is killed and says so", async () => {
  const result = await execProcess("sleep", ["60"], { timeoutMs: 20 });
  assert.deepEqual(result, { status: -1, stdout: "", stderr: "killed after 20 ms\n" });
});

test("abort kills the tool and rejects with the reason", async () => {
  const abort = new AbortController();
  const running = execProcess("sleep", ["60"], { signal: abort.signal });
  abort.abort(new Error("stopping"));
  await assert.rejects(running, /stopping/);
  await assert.rejects(execProcess("sleep", ["60"], { signal: abort.signal }), /stopping/);
});

test("the environment is extended, and PATH gains the directories of system tools", async () => {
  const { stdout } = await execProcess("sh", ["-c", "echo $X $PATH"], { env: { X: "1", PATH: "/usr/bin:/bin" } });
  assert.equal(stdout, "1 /usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\n");
  assert.equal(withSystemDirectories("/sbin:/usr/sbin:/usr/local/sbin"), "/sbin:/usr/sbin:/usr/local/sbin");
  assert.match(withSystemDirectories(undefined), /^\/usr\/local\/bin:.*:\/sbin$/);
});
