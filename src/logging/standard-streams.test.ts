import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { type StreamIo, standardStreams } from "./standard-streams.ts";

/** A pipe that takes `room` bytes and then blocks. */
function fakePipe(room: number) {
  const state = { room, text: "", pauses: 0, drainPerPause: 0, failure: "EAGAIN" };
  const io: StreamIo = {
    writeSome(_fd, bytes) {
      const taken = Math.min(state.room, bytes.length);
      if (taken === 0) throw Object.assign(new Error("cannot write"), { code: state.failure });
      state.room -= taken;
      state.text += Buffer.from(bytes.subarray(0, taken)).toString();
      return taken;
    },
    pause() {
      state.pauses += 1;
      state.room += state.drainPerPause;
    },
  };
  return { state, write: standardStreams((count) => `lost ${count}\n`, io) };
}

test("a line goes out in parts when the pipe takes it in parts", () => {
  const { state, write } = fakePipe(3);
  state.drainPerPause = 2;
  write("stderr", "a longer line\n");
  assert.equal(state.text, "a longer line\n");
});

test("a stuck reader costs a bounded wait, and later lines start on a line of their own and tell the loss", () => {
  const { state, write } = fakePipe(4);
  write("stderr", "first line\n");
  const pauses = state.pauses;
  assert.ok(pauses > 0 && pauses <= 100, `${pauses} pauses`);
  write("stderr", "second\n");
  state.room = 1000;
  write("stderr", "third\n");
  write("stderr", "fourth\n");
  assert.equal(state.text, "firs\nlost 2\nthird\nfourth\n");
});

test("a stuck reader is waited for once, and not with every line until it reads again", () => {
  const { state, write } = fakePipe(4);
  write("stderr", "first line\n");
  const { pauses } = state;
  for (let line = 0; line < 1_000; line += 1) write("stderr", "line\n");
  assert.equal(state.pauses, pauses);
  state.room = 20;
  write("stderr", "it reads\n");
  state.drainPerPause = 1;
  write("stderr", "slowly\n");
  assert.equal(state.text, "firs\nlost 1001\nit reads\nslowly\n");
});

test("a closed stream is not waited for and never throws", () => {
  const { state, write } = fakePipe(0);
  state.failure = "EPIPE";
  write("stdout", "line\n");
  assert.deepEqual([state.pauses, state.text], [0, ""]);
});

test("a pipe that nothing reads does not stop the program", { skip: process.platform === "win32" }, async (t) => {
  const module = new URL("./create-logger.ts", import.meta.url).href;
  const script = `const { createLogger } = await import(${JSON.stringify(module)});
    const log = createLogger();
    for (let i = 0; i < 2000; i++) log.info("line", { i, filler: "x".repeat(200) });
    process.stdout.write("done");`;
  // A pipe made by the shell, as containers have: those that Node.js makes are sockets.
  const command = '{ "$0" --input-type=module -e "$1" 2>&1 >&3 | sleep 120; } 3>&1';
  const child = spawn("sh", ["-c", command, process.execPath, script], {
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  t.after(() => process.kill(-(child.pid ?? assert.fail()), "SIGKILL"));
  const [said] = await once(child.stdout, "data", { signal: AbortSignal.timeout(30_000) });
  assert.equal(String(said), "done");
});
