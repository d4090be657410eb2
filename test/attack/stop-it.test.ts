/** What once stopped the program does not. `npm run attack` shows the figures. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PATIENCE, stretched } from "../../testkit/support/patience.ts";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { faultNode } from "../kernel/faults/fault-node.ts";
import {
  askForDebugger,
  floodFromServer,
  floodLog,
  hangUpOnPage,
  holdIdleConnections,
  type PipelineOutcome,
  pipelineUnread,
  victim,
} from "./stop-it.ts";

/** More than a daemon on the same machine takes that is not attacked; beside waits for a processor: other tests run here. */
const HEALTH_LIMIT_MS = 50 * PATIENCE;

describe("attacks", { skip: kernelSkip, timeout: 600_000 * PATIENCE }, () => {
  for (const [mode, openFiles] of [
    ["nftables", undefined],
    ["nftables", 200],
    ["iptables", 200],
    ["userspace", 200],
  ] as const) {
    test(`2,000 idle connections on each port, ${mode}, ${openFiles ?? "many"} descriptors`, async (t) => {
      const daemon = await victim(await faultNode(t), mode, openFiles);
      t.after(() => daemon.dispose());
      const { probe } = await holdIdleConnections(daemon, mode);
      assert.equal(probe.failed, 0);
      assert.ok(probe.count > 0);
    });
  }

  test("questions to the page whose clients hang up hold up neither others nor the end", async (t) => {
    const outcome = await hangUpOnPage(await faultNode(t), 3_000);
    assert.equal(outcome.probe.failed, 0);
    assert.ok(outcome.askedMs < stretched(2_500), `${outcome.askedMs} ms`);
    assert.ok(outcome.endMs < stretched(2_500), `${outcome.endMs} ms`);
    assert.ok(outcome.grownMb < 90, `${outcome.grownMb} MB more`);
  });

  test("two Services of 5,000 ports that claim the same addresses do not fill the log", async (t) => {
    const { lines, bytes } = await floodLog(await faultNode(t), 3);
    assert.ok(lines < 60 && bytes < 20_000, `${lines} lines, ${bytes} bytes`);
  });

  for (const what of ["blank lines", "ADDED"] as const) {
    test(`an API server that never stops writing: ${what}`, async (t) => {
      const { probe, endMs, grownMb, lines } = await floodFromServer(await faultNode(t), what, 2_000);
      assert.equal(probe.failed, 0);
      assert.ok(probe.longestMs < stretched(700), JSON.stringify(probe));
      assert.ok(endMs < stretched(2_000), `${endMs} ms`);
      assert.ok(what === "ADDED" || grownMb < 150, `${grownMb} MB more`);
      assert.ok(lines < 300, `${lines} lines of the log`);
    });
  }

  test("1,000 pipelined requests for metrics that are not read, and SIGUSR1", async (t) => {
    const daemon = await victim(await faultNode(t), "nftables");
    t.after(() => daemon.dispose());
    const spared = await victim(await faultNode(t), "nftables");
    t.after(() => spared.dispose());
    const rounds: PipelineOutcome[] = [];
    const isLate = (round: PipelineOutcome): boolean =>
      round.probe.longestMs >= HEALTH_LIMIT_MS + (round.spared?.longestMs ?? 0);
    do {
      const round = await pipelineUnread(daemon, 3_000, spared);
      rounds.push(round);
      const { probe, grownMb } = round;
      assert.equal(probe.failed, 0);
      assert.ok(grownMb < 40, `${grownMb} MB more`);
      // On a busy machine an answer waits for a processor now and then. A daemon that is held up by the requests is late each time.
    } while (rounds.every(isLate) && rounds.length < 3);
    assert.ok(!rounds.every(isLate), JSON.stringify(rounds));
    assert.deepEqual(await askForDebugger(daemon), { isOpen: false, isAlive: true });
  });
});
