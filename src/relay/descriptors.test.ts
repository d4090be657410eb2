/** What happens when descriptors run out: budget, and a process with a low limit. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { signalChild } from "../kernel/child-process.ts";
import { DescriptorBudget, shareOfRelays } from "./descriptor-budget.ts";
import type { Destination } from "./relay.ts";
import type { Command, Report } from "./testing/limited-relay.ts";
import { ask, echo, LOOPBACK, receiveAll, tcpClient, tcpServer } from "./testing/relay-lab.ts";

const LIMIT = 128;
/** 52 are for the rest of the program; the relay has one for itself and two for each connection. */
const SERVED = 37;
const WAITING = 13;
const REFUSED = 13;

class LimitedRelay {
  readonly #child: ChildProcess;

  constructor(t: TestContext, server: Destination) {
    const program = fileURLToPath(new URL("./testing/limited-relay.ts", import.meta.url));
    const script = `ulimit -n ${LIMIT}; exec "$0" "$@"`;
    const args = ["-c", script, process.execPath, program, String(server.port)];
    this.#child = spawn("sh", args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    t.after(() => signalChild(this.#child));
  }

  tell(command: Command): void {
    this.#child.send(command);
  }

  async report(): Promise<Report & Destination> {
    const answer = once(this.#child, "message");
    this.tell("report");
    const [report] = await answer;
    return { ...(report as Report), address: LOOPBACK };
  }

  async until(claim: (report: Report) => boolean): Promise<Report> {
    const endMs = performance.now() + 10_000;
    for (;;) {
      const report = await this.report();
      if (claim(report)) return report;
      assert.ok(performance.now() < endMs, `not in time: ${claim}\n${JSON.stringify(report)}`);
      await sleep(10);
    }
  }
}

describe("a process with few descriptors", () => {
  it("serves as many clients as it can, lets some wait, refuses the rest, and says so", async (t) => {
    const relay = new LimitedRelay(t, await tcpServer(t, echo));
    const address = await relay.report();
    const clients: Socket[] = [];
    for (let index = 0; index < SERVED + WAITING; index++) clients.push(await tcpClient(t, address));
    for (let index = 0; index < REFUSED; index++) assert.equal(await ask(t, address, "any room?"), "ECONNRESET");
    const { connections, seen, warnings } = await relay.until(({ seen }) => seen.refusals.length === REFUSED);
    assert.deepEqual([seen.opened, connections], [SERVED, SERVED + WAITING]);
    assert.deepEqual(new Set(seen.refusals), new Set(["out of file descriptors"]));
    assert.deepEqual(warnings, ["Out of file descriptors: clients wait or are refused; raise the limit of open files"]);
    const waiting = clients.splice(SERVED);
    const answers = waiting.map((client, index) => receiveAll(client.end(`patience ${index}`)));
    for (const client of clients.splice(0, WAITING)) client.destroy();
    for (const [index, answer] of answers.entries()) {
      assert.equal((await answer).data.toString(), `patience ${index}`);
    }
    assert.equal(await ask(t, address, "and a new one"), "and a new one");
  });

  it("gets over others having taken every descriptor", async (t) => {
    const relay = new LimitedRelay(t, await tcpServer(t, echo));
    const address = await relay.report();
    relay.tell("take every descriptor");
    await relay.report();
    const late = ask(t, address, "late");
    const { seen } = await relay.until(({ seen }) => seen.dialFailures.length > 0);
    assert.deepEqual(seen.dialFailures, ["EMFILE"]);
    relay.tell("give them back");
    assert.equal(await late, "late");
    assert.equal(await ask(t, address, "later"), "later");
  });
});

describe("the descriptor budget", () => {
  it("leaves a part to the rest of the program", () => {
    assert.deepEqual(shareOfRelays(64_000), { limit: 62_976, waitingLimit: 256 });
    assert.deepEqual(shareOfRelays(1024), { limit: 896, waitingLimit: 32 });
    assert.deepEqual(shareOfRelays(50), { limit: 0, waitingLimit: 13 });
    assert.equal(shareOfRelays(Number.POSITIVE_INFINITY).limit, Number.POSITIVE_INFINITY);
  });

  it("serves those who wait in their order, before those who come later", () => {
    const budget = new DescriptorBudget({ limit: 4, waitingLimit: 2 });
    assert.ok(budget.take(4));
    const served: string[] = [];
    const takeBack = budget.wait(2, () => served.push("first"));
    budget.wait(2, () => served.push("second"));
    assert.equal(
      budget.wait(2, () => served.push("third")),
      undefined,
      "too many wait",
    );
    budget.giveBack(1);
    assert.ok(!budget.take(1), "it is kept for those who wait");
    takeBack?.();
    assert.deepEqual(served, []);
    budget.giveBack(1);
    assert.deepEqual([served, budget.used], [["second"], 4]);
  });

  it("says what is short, and not that a part of it is used up", () => {
    const reports: string[] = [];
    const whole = new DescriptorBudget({ limit: 3, onShortage: () => reports.push("descriptors") });
    const part = new DescriptorBudget({ limit: 2, parent: whole, onShortage: () => reports.push("sessions") });
    assert.ok(whole.take(3));
    assert.ok(!part.take(1));
    assert.deepEqual(reports, ["descriptors"]);
  });

  it("is part of another one", () => {
    const reports: string[] = [];
    const whole = new DescriptorBudget({ limit: 3, onShortage: (limit) => reports.push(`whole ${limit}`) });
    const part = new DescriptorBudget({
      limit: 2,
      parent: whole,
      onShortage: (limit) => reports.push(`part ${limit}`),
    });
    assert.ok(part.take(2));
    assert.ok(!part.take(1));
    assert.deepEqual(reports, ["part 2"]);
    assert.ok(whole.take(1));
    assert.ok(!whole.take(1));
    part.giveBack(2);
    assert.deepEqual([whole.used, part.used], [1, 0]);
    assert.ok(whole.take(2));
    assert.ok(!part.take(1));
    assert.equal(part.used, 0);
  });
});
