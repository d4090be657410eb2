import assert from "node:assert/strict";
import { test } from "node:test";
import {
  isProtocolName,
  PROTOCOL_NAMES,
  PROTOCOL_NUMBERS,
  PROTOCOLS,
  protocolName,
  protocolNameOfNumber,
  protocolOfNumber,
} from "./protocol.ts";

test("every protocol has one name and one number, by which it is found again", () => {
  assert.deepEqual(PROTOCOLS.map(protocolName), ["tcp", "udp", "sctp"]);
  assert.deepEqual(
    PROTOCOLS.map((protocol) => PROTOCOL_NUMBERS[protocol]),
    [6, 17, 132],
  );
  for (const protocol of PROTOCOLS) {
    const name = protocolName(protocol);
    assert.equal(PROTOCOL_NUMBERS[name], PROTOCOL_NUMBERS[protocol]);
    assert.equal(protocolOfNumber(PROTOCOL_NUMBERS[protocol]), protocol);
    assert.equal(protocolNameOfNumber(PROTOCOL_NUMBERS[name]), name);
  }
});

test("other protocols are none", () => {
  for (const number of [undefined, 0, 1, 58, 255]) {
    assert.equal(protocolOfNumber(number), undefined);
    assert.equal(protocolNameOfNumber(number), undefined);
  }
  assert.deepEqual(["tcp", "TCP", "icmp", "", "toString"].filter(isProtocolName), ["tcp"]);
  assert.deepEqual(PROTOCOL_NAMES.filter(isProtocolName), PROTOCOL_NAMES);
});
