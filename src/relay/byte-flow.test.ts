/** One direction of a connection, and the memory that it reads into. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { ByteFlow, readByEvents, readThrough } from "./byte-flow.ts";
import { FairTurns } from "./fair-turns.ts";
import { ReadBuffers, SMALL_READ_BYTES } from "./read-buffers.ts";
import { LOOPBACK, receiveAll, tcpClient, tcpServer, until } from "./testing/relay-lab.ts";

/** An accepted socket that reads nothing yet, and the client at its other end. */
async function acceptedPair(t: TestContext): Promise<{ accepted: Socket; client: Socket }> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }).listen(0, LOOPBACK);
  t.after(() => server.close());
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  const [[accepted], client] = await Promise.all([
    once(server, "connection"),
    tcpClient(t, { address: LOOPBACK, port: address.port }),
  ]);
  t.after(() => accepted.destroy());
  return { accepted, client };
}

/** A socket to write to, and what arrives at the other end of it. */
async function sinkPair(t: TestContext): Promise<{ sink: Socket; received: Promise<{ data: Buffer }> }> {
  const { promise, resolve } = Promise.withResolvers<{ data: Buffer }>();
  const { address, port } = await tcpServer(t, (socket) => resolve(receiveAll(socket)));
  const sink = connect({ host: address, port, allowHalfOpen: true });
  await once(sink, "connect");
  t.after(() => sink.destroy());
  return { sink, received: promise };
}

describe("a byte flow", () => {
  for (const [how, read] of [
    ["into its own buffers", readThrough],
    ["by events", readByEvents],
  ] as const) {
    it(`carries everything, and the end, when it reads ${how}`, async (t) => {
      const data = randomBytes(8_000_000);
      const { accepted, client } = await acceptedPair(t);
      const { sink, received } = await sinkPair(t);
      const buffers = new ReadBuffers();
      let count = 0;
      const flow = new ByteFlow({ buffers, turns: new FairTurns() }, (bytes) => {
        count += bytes;
      });
      const source = read(flow, accepted);
      t.after(() => source.destroy());
      flow.connect(source, sink);
      client.end(data);
      assert.ok((await received).data.equals(data));
      assert.equal(count, data.length);
      flow.release();
      assert.equal(buffers.lentLarge, 0);
    });
  }

  it("borrows a large buffer while there is much to read, and gives it back when there is little", async (t) => {
    const { accepted, client } = await acceptedPair(t);
    const { sink } = await sinkPair(t);
    const buffers = new ReadBuffers();
    let most = 0;
    const flow = new ByteFlow({ buffers, turns: new FairTurns() }, () => {
      most = Math.max(most, buffers.lentLarge);
    });
    const source = readThrough(flow, accepted);
    t.after(() => source.destroy());
    flow.connect(source, sink);
    client.write("little");
    await until(() => sink.bytesWritten === 6);
    assert.equal(most, 0);
    client.write(Buffer.alloc(2_000_000));
    await until(() => sink.bytesWritten === 2_000_006);
    assert.equal(most, 1);
    client.write("little again");
    await until(() => buffers.lentLarge === 0);
    sink.destroy();
  });
});

describe("read buffers", () => {
  it("are lent up to a limit, smaller ones when the large are gone, and reused", () => {
    const buffers = new ReadBuffers();
    const lent: Buffer[] = [];
    for (let buffer = buffers.takeLarge(); buffer !== undefined; buffer = buffers.takeLarge()) lent.push(buffer);
    const sizes = lent.map(({ length }) => length);
    assert.equal(sizes[0], 262_144);
    assert.equal(sizes.at(-1), 32_768);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    assert.ok(total < 101e6, `${total} bytes`);
    const [first] = lent;
    assert.ok(first);
    for (const buffer of lent) buffers.giveBack(buffer);
    assert.equal(buffers.lentLarge, 0);
    assert.equal(buffers.takeLarge()?.length, 262_144);
  });

  it("never overlap", () => {
    const buffers = new ReadBuffers();
    const small = Array.from({ length: 40 }, () => buffers.takeSmall());
    for (const [index, buffer] of small.entries()) buffer.fill(index);
    for (const [index, buffer] of small.entries()) {
      assert.ok(buffer.length === SMALL_READ_BYTES && buffer.every((byte) => byte === index));
    }
    for (const buffer of small) buffers.giveBack(buffer);
    assert.ok(small.includes(buffers.takeSmall()));
    assert.throws(() => buffers.giveBack(Buffer.alloc(10)), RangeError);
  });
});
