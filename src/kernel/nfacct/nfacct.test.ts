import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { openNfacct, writeCounter } from "./nfacct.ts";

test("requests have the documented layout (reference iptables-operation.md §12.2)", () => {
  const [get, create] = (["get", "create"] as const).map((verb) => {
    const messages = new MessageBuffer();
    writeCounter(messages, verb, verb === "get" ? "IMayExist" : "a");
    messages.setSequence(1);
    return Buffer.from(messages.bytes);
  });
  // type 0x701, REQUEST · nfgenmsg · length 14, type 1, "IMayExist\0", 2 bytes of padding
  assert.equal(
    get?.toString("hex"),
    "240000000107010001000000000000000000000" + "0" + "0e000100" + "494d61794578697374000000",
  );
  assert.equal(create?.readUInt16LE(4), 0x700);
  assert.equal(create?.readUInt16LE(6), 0x401);
});

inNetns(import.meta.url, { name: "nfacct" }, () => {
  describe("the kernel's accounting counters", () => {
    test("exist once ensured, start at zero, and a refused one is only reported", async (t) => {
      const refused: unknown[] = [];
      const reasons: unknown[] = [];
      const log: Logger = {
        ...silentLogger,
        info: (_message, facts) => void reasons.push(facts?.why),
        error: (_message, _error, facts) => void refused.push(facts),
      };
      const counters = await openNfacct(log);
      if (counters === undefined) {
        // A kernel without accounting is no error; the log names the reason.
        assert.match(String(reasons[0]), /netlink/);
        t.skip("this kernel has no accounting");
        return;
      }
      try {
        assert.equal(await counters.packets("a"), undefined);
        assert.deepEqual([await counters.ensure("a"), await counters.ensure("a")], [true, true]);
        assert.equal(await counters.packets("a"), 0);
        assert.equal(await counters.ensure("x".repeat(31)), true);
        assert.equal(await counters.ensure("x".repeat(40)), false);
        assert.deepEqual(refused, [{ counter: "x".repeat(40) }]);
      } finally {
        await counters.close();
      }
    });
  });
});
