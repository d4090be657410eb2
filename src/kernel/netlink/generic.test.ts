import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { byteReader } from "./attributes.ts";
import { NETLINK_GENERIC } from "./constants.ts";
import { NetlinkError } from "./errors.ts";
import { forEachMessage } from "./frames.ts";
import { familyId, genericPayload, putGeneric } from "./generic.ts";
import { MessageBuffer } from "./message-buffer.ts";
import { NetlinkSocket } from "./socket.ts";

describe("generic netlink", () => {
  test("messages have the family's number as type, and command and version before their attributes", () => {
    const messages = new MessageBuffer();
    putGeneric(messages, 32, 15, 1, 0);
    // What ipvsadm sends to ask for the version: length 20, type 32 · command 15, version 1.
    assert.equal(messages.bytes.toString("hex"), "14000000200001000000000000000000" + "0f010000");
    forEachMessage(byteReader(messages.bytes), messages.bytes.length, (reply) => {
      const { command, start, end } = genericPayload(reply);
      assert.deepEqual([command, start, end], [15, 20, 20]);
    });
  });

  test("a message without the header is malformed", () => {
    const messages = new MessageBuffer();
    messages.put(32, 0, () => {});
    forEachMessage(byteReader(messages.bytes), messages.bytes.length, (reply) => {
      assert.throws(
        () => genericPayload(reply),
        (error) => error instanceof NetlinkError && error.code === "malformed",
      );
    });
  });
});

inNetns(import.meta.url, { name: "generic" }, () => {
  test("the kernel knows families by name, and says which it does not know", async () => {
    await using socket = NetlinkSocket.open(NETLINK_GENERIC);
    assert.equal(await familyId(socket, "nlctrl"), 16);
    assert.equal(await familyId(socket, "no-such-family"), undefined);
  });
});
