import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { memoryCounters } from "../../../testkit/fakes/nfacct/memory-nfacct.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { type AccountingCounters, availableCounters, openAccountingCounters, writeCounterRequest } from "./nfacct.ts";

type Use = (counters: AccountingCounters) => Promise<void>;

/** `withCounters` gives a namespace's counters to the test, or skips it where the kernel has none. */
function contract(withCounters: (t: TestContext, use: Use) => Promise<void>): void {
  test("a counter that was never created has no value", (t) =>
    withCounters(t, async (counters) => {
      assert.equal(await counters.read("absent"), undefined);
    }));

  test("a created counter starts at zero, and ensuring it again keeps it", (t) =>
    withCounters(t, async (counters) => {
      await counters.ensure("ct_state_invalid_dropped_pkts");
      await counters.ensure("ct_state_invalid_dropped_pkts");
      assert.deepEqual(await counters.read("ct_state_invalid_dropped_pkts"), { packets: 0, bytes: 0 });
    }));

  test("a name that is empty or too long is refused", (t) =>
    withCounters(t, async (counters) => {
      await assert.rejects(counters.ensure(""), RangeError);
      await assert.rejects(counters.ensure("x".repeat(32)), RangeError);
      await counters.ensure("x".repeat(31));
    }));
}

describe("accounting counters in memory", () => {
  contract((_t, use) => use(memoryCounters()));

  test("count traffic", async () => {
    const counters = memoryCounters();
    await counters.ensure("a");
    counters.count("a", 2, 100);
    counters.count("a", 1, 20);
    assert.deepEqual(await counters.read("a"), { packets: 3, bytes: 120 });
  });

  test("a kernel without accounting says so and refuses", async () => {
    const counters = memoryCounters({ unavailable: "no module" });
    await assert.rejects(counters.read("a"), /no module/);
    await assert.rejects(counters.ensure("a"), /no module/);
  });
});

describe("counters for rules and metrics", () => {
  test("are undefined when the kernel has no accounting", async () => {
    assert.equal(await availableCounters(memoryCounters({ unavailable: "no module" }), silentLogger), undefined);
  });

  test("exist once ensured, and a refused one is only reported", async () => {
    const memory = memoryCounters();
    const logged: unknown[] = [];
    const log: Logger = { ...silentLogger, error: (_message, _error, facts) => void logged.push(facts) };
    const counters = await availableCounters(memory, log);
    assert.equal(await counters?.packets("a"), undefined);
    assert.equal(await counters?.ensure("a"), true);
    memory.count("a", 3, 180);
    assert.equal(await counters?.packets("a"), 3);
    assert.equal(await counters?.ensure("x".repeat(40)), false);
    assert.deepEqual(logged, [{ counter: "x".repeat(40) }]);
  });
});

test("requests have the documented layout (reference iptables-operation.md §12.2)", () => {
  const messages = new MessageBuffer();
  writeCounterRequest(messages, "get", "IMayExist");
  writeCounterRequest(messages, "create", "a");
  messages.setSequence(1);
  const [get, create] = [messages.bytes.subarray(0, messages.startOf(1)), messages.bytes.subarray(messages.startOf(1))];
  // type 0x701, REQUEST · nfgenmsg · length 14, type 1, "IMayExist\0", 2 bytes of padding
  assert.equal(
    get.toString("hex"),
    "240000000107010001000000000000000000000" + "0" + "0e000100" + "494d61794578697374000000",
  );
  assert.equal(create.readUInt16LE(4), 0x700);
  assert.equal(create.readUInt16LE(6), 0x401);
});

inNetns(import.meta.url, { name: "nfacct" }, () => {
  describe("the kernel's accounting counters", () => {
    contract(async (t, use) => {
      await using counters = openAccountingCounters();
      if ((await availableCounters(counters, silentLogger)) !== undefined) await use(counters);
      else t.skip("this kernel has no accounting");
    });

    test("a kernel without accounting is no error, and the log has its reason", async () => {
      await using counters = openAccountingCounters();
      const reasons: unknown[] = [];
      const log: Logger = { ...silentLogger, info: (_message, facts) => void reasons.push(facts?.why) };
      const available = await availableCounters(counters, log);
      assert.ok(available !== undefined || String(reasons[0]).includes("netlink"));
    });
  });
});
