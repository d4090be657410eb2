/** Messages as a kernel (Linux 6.18) sent them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpAddress } from "../../../net/ip.ts";
import { byteReader } from "../../netlink/attributes.ts";
import { NetlinkError } from "../../netlink/errors.ts";
import { forEachMessage, type Reply } from "../../netlink/frames.ts";
import { messageLines } from "../netlink-dump.ts";
import { isOpeningSegment, packetEnds } from "./packet-headers.ts";
import { readTraceEvent, type TraceEvent } from "./trace-event.ts";
import { traceTableBatch } from "./trace-table.ts";

const HEADERS = "180008004500003cb502400040065f9e0a0909010a09090918000900ad120050fa63620a00000000a002ffd7264a0000";
const RULE = `9c000000110a000000000000000000000200000008000f00000000020800040000000003080006002ea402a7060002006f00000006000100610000000c00030000000000000000020c00050008000100ffffffff08000e000000000708000c000000000106000d0003040000${HEADERS}`;
const POLICY =
  "4c000000110a000000000000000000000200000008000f00000000020800040000000001080006002ea402a7060002006f0000000600010061000000080010000000000108000e0000000007";
const NAT = `c0000000110a000000000000000000000200000008000f00000000020800040000000003080006002ea402a70b0002004f55545055540000080001006e6174000c00030000000000000000020c000500080001000000000108000e000000000708000c000000000106000d0003040000${HEADERS}08001500000000080500130000000000080012002743796c0800140000000120`;

function read(hex: string): TraceEvent | undefined {
  const bytes = Buffer.from(hex, "hex");
  let event: TraceEvent | undefined;
  forEachMessage(byteReader(bytes), bytes.length, (reply: Reply) => {
    event = readTraceEvent(reply);
  });
  return event;
}

test("a rule: where it is, its verdict, the packet's headers and mark", () => {
  const event = read(RULE);
  assert.ok(event?.headers !== undefined);
  const { headers, ...rest } = event;
  assert.deepEqual(rest, {
    ...{ id: 0x2ea402a7, family: 2, table: "a", chain: "o", kind: "rule", mark: 7, handle: 2 },
    verdict: { code: -1 },
    connection: undefined,
  });
  assert.deepEqual([headers.inInterface, headers.outInterface], [undefined, 1]);
  assert.deepEqual(packetEnds(headers, true), {
    ...{ source: "10.9.9.1", sourcePort: 44306, destination: "10.9.9.9", destinationPort: 80 },
  });
  assert.equal(packetEnds(headers, false)?.destinationPort, undefined);
  assert.ok(isOpeningSegment(headers));
  assert.equal(packetEnds({ ...headers, network: headers.network.subarray(0, 12) }, true), undefined);
});

test("a policy, and what connection tracking knows", () => {
  const policy = read(POLICY);
  assert.deepEqual([policy?.kind, policy?.verdict, policy?.headers], ["policy", { code: 1 }, undefined]);
  const nat = read(NAT);
  assert.deepEqual([nat?.table, nat?.chain, nat?.verdict.code], ["nat", "OUTPUT", 1]);
  assert.deepEqual(nat?.connection, { state: 8, status: 0x120 });
});

test("other messages are passed over, broken ones refused", () => {
  assert.equal(read(RULE.replace("110a", "060a")), undefined);
  // An unknown type.
  assert.throws(() => read(POLICY.replace("0800040000000001", "0800040000000009")), NetlinkError);
});

test("segments that open a connection have SYN and no ACK, others have not", () => {
  const expressions = (opening: boolean): readonly string[] => {
    const anything = { source: undefined, sourcePort: undefined, inInterface: undefined, mark: undefined };
    const to = { family: "ip", protocol: 6, destination: "10.0.0.2" as IpAddress, destinationPort: 80 } as const;
    const batch = traceTableBatch({ ...anything, ...to, hooks: new Set(["output"]), opening }, false);
    return [...messageLines(batch.messages)]
      .filter((line) => /bitwise|cmp .*value 02\)/.test(line))
      .map((line) => line.trim());
  };
  const masked = "- bitwise sreg 1, dreg 1, len 1, op 0, mask (value 12), xor (value 00)";
  assert.deepEqual(expressions(true), [masked, "- cmp sreg 1, op 0, data (value 02)"]);
  assert.deepEqual(expressions(false), [masked, "- cmp sreg 1, op 1, data (value 02)"]);
});
