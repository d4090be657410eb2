/** Reading conntrack entries: neither the order of a tuple's attributes nor unknown ones in between matter. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { byteReader } from "../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN, NLA_F_NESTED } from "../netlink/constants.ts";
import { readFlow } from "./ctnetlink.ts";

/** linux/netlink.h: length and type in host order, the payload, and zeros up to a multiple of four bytes. */
function attribute(type: number, payload: readonly number[]): number[] {
  const head = [4 + payload.length, type].flatMap((half) => {
    const bytes = [half & 255, half >> 8];
    return HOST_IS_LITTLE_ENDIAN ? bytes : bytes.reverse();
  });
  return [...head, ...payload, ...Array<number>(-payload.length & 3).fill(0)];
}

type Order = (attributes: number[][]) => number[][];

/** linux/netfilter/nfnetlink_conntrack.h, `enum ctattr_tuple` and its two nests. */
function tuple(type: number, ends: readonly [string, number, string, number], order: Order): number[] {
  const nest = (own: number, parts: number[][]) => attribute(own | NLA_F_NESTED, order(parts).flat());
  const [source, sourcePort, destination, destinationPort] = ends;
  const address = (own: number, text: string) => attribute(own, text.split(".").map(Number));
  const port = (own: number, number: number) => attribute(own, [number >> 8, number & 255]);
  return nest(type, [
    nest(1, [address(1, source), address(2, destination)]),
    nest(2, [attribute(1, [17]), port(2, sourcePort), port(3, destinationPort)]),
  ]);
}

function flowOf(order: Order) {
  const original = tuple(1, ["10.180.0.9", 40_001, "10.96.0.10", 53], order);
  const reply = tuple(2, ["10.180.1.11", 5353, "10.180.0.9", 40_001], order);
  // A netlink header and an nfnetlink header.
  const bytes = [...Array<number>(16).fill(0), 2, 0, 0, 0, ...original, ...reply, ...attribute(12, [0, 0, 4, 210])];
  const input = byteReader(Buffer.from(bytes));
  return readFlow({ type: 0, flags: 0, sequence: 0, portId: 0, input, start: 16, end: bytes.length });
}

test("a tuple says the same in the order of kernels, in any other, and with more in it", () => {
  const usual = flowOf((attributes) => attributes);
  const [protocol, sourcePort, replySourcePort, id] = ["UDP", 40_001, 5353, 1234];
  assert.deepEqual({ ...usual, ...{ protocol, sourcePort, replySourcePort, id } }, usual);
  assert.deepEqual([usual?.sourceIP, usual?.destinationIP, usual?.destinationPort], ["10.180.0.9", "10.96.0.10", 53]);
  assert.deepEqual([usual?.replySourceIP, usual?.replyDestinationIP], ["10.180.1.11", "10.180.0.9"]);
  assert.deepEqual(
    flowOf((attributes) => attributes.toReversed()),
    usual,
  );
  assert.deepEqual(
    flowOf((attributes) => [...attributes, attribute(99, [1, 2, 3])]),
    usual,
  );
});
