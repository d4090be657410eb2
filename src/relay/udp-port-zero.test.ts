/** Datagrams of senders that want no answer: their source port is 0 (RFC 768). */
import assert from "node:assert/strict";
import { closeSync, writeSync } from "node:fs";
import { it } from "node:test";
import { libc } from "../kernel/netlink/libc.ts";
import { ADDRESS_FAMILIES, socketAddress } from "../kernel/socket-address.ts";
import { exchange, LOOPBACK, relayTo, udpEcho, udpSocket, until } from "./testing/relay-lab.ts";

const SOCK_RAW = 3;
const IPPROTO_UDP = 17;

/** Sends a datagram that comes from port 0, which no UDP socket has. */
function sendFromPortZero(text: string, port: number): void {
  const { socket, connect } = libc();
  const fd = socket(ADDRESS_FAMILIES.IPv4, SOCK_RAW, IPPROTO_UDP);
  const header = Buffer.alloc(8);
  header.writeUInt16BE(port, 2);
  header.writeUInt16BE(header.length + text.length, 4);
  const datagram = Buffer.concat([header, Buffer.from(text)]);
  const address = socketAddress({ address: LOOPBACK, port: 0 });
  try {
    assert.equal(connect(fd, address, address.length), 0);
    assert.equal(writeSync(fd, datagram), datagram.length);
  } finally {
    closeSync(fd);
  }
}

const skip = process.getuid?.() === 0 ? false : "raw sockets need root";

it("an answer to a datagram from port 0 is dropped, and the others are served", { skip, timeout: 5000 }, async (t) => {
  const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t));
  sendFromPortZero("no answer", relay.port);
  await until(() => seen.bytes.out > 0);
  assert.equal(String(await exchange(await udpSocket(t), relay, "answer me")), "answer me");
});
