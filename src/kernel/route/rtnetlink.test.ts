import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import type { IpAddress } from "../../net/ip.ts";
import { byteReader } from "../netlink/attributes.ts";
import { NetlinkError } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { readAddress, readLink, writeAddress, writeDummyCreate } from "./rtnetlink.ts";

// Payloads as Linux 6.1 (x86-64) sent them.
/** A dummy device that is down, without most of its attributes. */
const LINK =
  "000001000300000082000000000000000f0003006b7562652d6970767330000008000d00e80300000500100002000000" +
  "08000400dc05000009000600" +
  "6e6f6f7000000000100012000a00010064756d6d79000000";
const LOOPBACK = "00000403010000004900010000000000070003006c6f000008000d00e8030000";
const ADDRESS =
  "0220800003000000080001000a600001080002000a6000010f0003006b7562652d69707673300000" +
  "080008008000000014000600ffffffffffffffff9d0100009d010000";
const ADDRESS_IPV6 =
  "0a8080000300000014000100fd00000000000000000000000000000114000600ffffffffffffffffa1010000a10100000800080080000000";

const RTM_NEWLINK = 16;
const RTM_DELLINK = 17;
const RTM_NEWADDR = 20;

function reply(type: number, payload: string | Uint8Array): Reply {
  const bytes = typeof payload === "string" ? Buffer.from(payload, "hex") : payload;
  return { type, flags: 0, sequence: 0, portId: 0, input: byteReader(bytes), start: 0, end: bytes.length };
}

describe("messages of a kernel about devices and addresses", () => {
  test("a device, with its kind", () => {
    const alone = { bridge: undefined, stackedOn: undefined, namespaceBelow: undefined };
    const link = { name: "kube-ipvs0", index: 3, kind: "dummy", isUp: false, ...alone };
    assert.deepEqual(readLink(reply(RTM_NEWLINK, LINK)), { ...link, isDeleted: false });
    assert.deepEqual(readLink(reply(RTM_DELLINK, LINK)), { ...link, isDeleted: true });
    const lo = { name: "lo", index: 1, kind: undefined, isUp: true, isDeleted: false, ...alone };
    assert.deepEqual(readLink(reply(RTM_NEWLINK, LOOPBACK)), lo);
  });

  test("addresses of both families", () => {
    assert.deepEqual(readAddress(reply(RTM_NEWADDR, ADDRESS)), { address: "10.96.0.1", prefixLength: 32, index: 3 });
    assert.deepEqual(readAddress(reply(RTM_NEWADDR, ADDRESS_IPV6)), {
      address: "fd00::1",
      prefixLength: 128,
      index: 3,
    });
  });

  test("messages about other things are nothing", () => {
    assert.equal(readLink(reply(RTM_NEWADDR, ADDRESS)), undefined);
    assert.equal(readAddress(reply(RTM_NEWLINK, LINK)), undefined);
  });

  test("cut short, with a byte changed or made of anything are read or refused as malformed", () => {
    const anyBytes = fc.oneof(
      fc.uint8Array({ maxLength: 120 }),
      fc
        .tuple(fc.constantFrom(LINK, ADDRESS, ADDRESS_IPV6), fc.nat(), fc.nat(), fc.nat(255))
        .map(([hex, cut, at, byte]) => {
          const bytes = Buffer.from(hex, "hex");
          bytes[at % bytes.length] = byte;
          return bytes.subarray(0, cut % (bytes.length + 1));
        }),
    );
    fc.assert(
      fc.property(anyBytes, (bytes) => {
        for (const look of [() => readLink(reply(RTM_NEWLINK, bytes)), () => readAddress(reply(RTM_NEWADDR, bytes))]) {
          try {
            look();
          } catch (error) {
            assert.ok(error instanceof NetlinkError && error.code === "malformed", String(error));
          }
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe("messages of ours about devices and addresses", () => {
  test("name what they create", () => {
    const messages = new MessageBuffer();
    writeDummyCreate(messages, "kube-ipvs0");
    const { name, kind } = readLink(reply(RTM_NEWLINK, messages.bytes.subarray(16))) ?? {};
    assert.deepEqual([name, kind], ["kube-ipvs0", "dummy"]);
    // NLM_F_REQUEST, NLM_F_EXCL and NLM_F_CREATE
    assert.equal(messages.flagsOf(0), 0x601);
  });

  test("say which address, in full length", () => {
    for (const [text, prefixLength] of [["10.96.0.1", 32] as const, ["fd00::1", 128] as const]) {
      const address = text as IpAddress; // canonical
      const messages = new MessageBuffer();
      writeAddress(messages, "add", 3, address);
      const found = readAddress(reply(messages.typeOf(0), messages.bytes.subarray(16)));
      assert.deepEqual(found, { address, prefixLength, index: 3 });
    }
  });
});
