/** TCP through a relay, with real sockets on the loopback device. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { silentLogger } from "../logging/logger.ts";
import { NodeRelays } from "./node-relays.ts";
import type { Destination } from "./relay.ts";
import { resetSocket } from "./tcp-connection.ts";
import {
  ask,
  closedPort,
  echo,
  LOOPBACK_6,
  receiveAll,
  relayTo,
  tcpClient,
  tcpServer,
  until,
} from "./testing/relay-lab.ts";

const sha = (data: Buffer): string => createHash("sha256").update(data).digest("hex");

/** Sends in pieces of random sizes, now and then with a turn of the event loop in between. */
async function sendInPieces(socket: Socket, data: Buffer): Promise<void> {
  for (let sent = 0; sent < data.length; ) {
    const end = sent + 1 + Math.floor(Math.random() ** 4 * 600_000);
    if (!socket.write(data.subarray(sent, end))) await once(socket, "drain");
    sent = end;
  }
  socket.end();
}

describe("bytes through a TCP relay", () => {
  for (const address of [undefined, LOOPBACK_6]) {
    it(`come out as they went in, in both directions at once, over ${address ?? "IPv4"}`, async (t) => {
      const [up, down] = [randomBytes(20_000_000), randomBytes(20_000_000)];
      let received: Promise<{ data: Buffer }> | undefined;
      const server = await tcpServer(
        t,
        (socket) => {
          received = receiveAll(socket);
          void sendInPieces(socket, down);
        },
        address,
      );
      const { relay, seen } = await relayTo(t, "TCP", server, address === undefined ? {} : { address });
      const client = await tcpClient(t, relay);
      const got = receiveAll(client);
      await sendInPieces(client, up);
      assert.equal(sha((await got).data), sha(down));
      assert.equal(sha((await received)?.data ?? Buffer.alloc(0)), sha(up));
      assert.deepEqual(seen.bytes, { in: up.length, out: down.length });
      await until(() => relay.connections === 0);
      assert.deepEqual([seen.opened, seen.closed, seen.refusals], [1, 1, []]);
    });
  }

  it("go on coming after the client has ended its side (half-close)", async (t) => {
    const server = await tcpServer(t, (socket) => {
      socket.resume().on("end", async () => {
        await sleep(20);
        socket.write("after ");
        await sleep(20);
        socket.end("the end");
      });
    });
    const { relay } = await relayTo(t, "TCP", server);
    assert.equal(await ask(t, relay, "request"), "after the end");
  });

  it("go on going after the endpoint has ended its side (half-close)", async (t) => {
    let received: Promise<{ data: Buffer }> | undefined;
    const server = await tcpServer(t, (socket) => {
      received = receiveAll(socket);
      socket.end("hello and good-bye");
    });
    const { relay } = await relayTo(t, "TCP", server);
    const client = await tcpClient(t, relay);
    assert.equal((await receiveAll(client)).data.toString(), "hello and good-bye");
    client.write("still ");
    await sleep(20);
    client.end("here");
    assert.equal((await received)?.data.toString(), "still here");
  });

  it("that arrive while dialling are not lost", async (t) => {
    const server = await tcpServer(t, echo);
    const nobody = await closedPort(t);
    const { relay, seen } = await relayTo(t, "TCP", (_client, attempt) => (attempt < 3 ? nobody : server));
    assert.equal(await ask(t, relay, "early"), "early");
    assert.deepEqual(seen.dialFailures, ["ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED"]);
  });

  it("wait in bounded memory for a client that never reads, and are forgotten with it", async (t) => {
    const total = 100_000_000;
    const server = await tcpServer(t, (socket) => void socket.write(Buffer.alloc(total)));
    const { relay, seen } = await relayTo(t, "TCP", server);
    const client = (await tcpClient(t, relay)).pause();
    let last = -1;
    await until(() => {
      const hasStalled = seen.bytes.out > 0 && seen.bytes.out === last;
      last = seen.bytes.out;
      return hasStalled;
    });
    await sleep(100);
    // The kernel's buffers of both sockets were filled, and one of ours.
    assert.ok(seen.bytes.out < total / 4, `${seen.bytes.out} bytes were read`);
    client.resetAndDestroy();
    await until(() => relay.connections === 0 && server.sockets.size === 0);
  });
});

describe("dialling", () => {
  it("tells who the client is and counts attempts, and gives up after the last", async (t) => {
    const nobody = await closedPort(t);
    const asked: (readonly [Destination, number])[] = [];
    const { relay, seen } = await relayTo(t, "TCP", (client, attempt) => {
      asked.push([client, attempt]);
      return nobody;
    });
    const client = await tcpClient(t, relay);
    const self = { address: client.localAddress, port: client.localPort };
    assert.equal((await receiveAll(client)).error, "ECONNRESET");
    assert.deepEqual(
      asked,
      [0, 1, 2, 3].map((attempt) => [self, attempt]),
    );
    assert.deepEqual(seen.refusals, ["failed to connect to an endpoint"]);
    assert.equal(seen.dialFailures.length, 4);
    await until(() => relay.connections === 0);
    assert.deepEqual([seen.opened, seen.closed], [0, 0]);
  });

  it("hears an answer that came while the process was busy", async (t) => {
    const server = await tcpServer(t, echo);
    const { relay, seen } = await relayTo(
      t,
      "TCP",
      () => {
        process.nextTick(setImmediate, () => {
          for (const endMs = performance.now() + 60; performance.now() < endMs; );
        });
        return server;
      },
      { dialTimeoutsMs: [30] },
    );
    assert.equal(await ask(t, relay, "hello"), "hello");
    assert.deepEqual(seen.dialFailures, []);
  });

  it("is not even tried without an endpoint", async (t) => {
    const { relay, seen } = await relayTo(t, "TCP", () => undefined);
    assert.equal(await ask(t, relay, "anybody?"), "ECONNRESET");
    assert.deepEqual([seen.refusals, seen.dialFailures], [["no endpoint"], []]);
  });

  it("refuses an endpoint that leads back to the relay, before it takes every descriptor", async (t) => {
    let own: Destination | undefined;
    let dials = 0;
    const { relay, seen } = await relayTo(t, "TCP", () => {
      dials++;
      return own;
    });
    own = relay;
    assert.equal(await ask(t, relay, "hall of mirrors"), "ECONNRESET");
    assert.ok(dials < 200, `${dials} dials`);
    assert.ok(seen.refusals.includes("a loop: the endpoint leads back to this proxy"));
    await until(() => relay.connections === 0);
    assert.equal(seen.opened, seen.closed);
  });

  it("reaches a service behind a service", async (t) => {
    const server = await tcpServer(t, echo);
    const inner = await relayTo(t, "TCP", server);
    const outer = await relayTo(t, "TCP", inner.relay);
    assert.equal(await ask(t, outer.relay, "twice"), "twice");
  });

  it("reaches the last one of twelve services", async (t) => {
    const relays = new NodeRelays({ log: silentLogger, fileLimit: 64_000 });
    let to: Destination = await tcpServer(t, echo);
    for (let number = 1; number <= 12; number++) to = (await relayTo(t, "TCP", to, { relays })).relay;
    assert.equal(await ask(t, to, "far away"), "far away");
  });

  it("serves a program on this host that gets the port of a connection to an endpoint", async (t) => {
    let port = 0;
    const server = await tcpServer(t, (socket) => {
      port = socket.remotePort ?? 0;
      socket.end();
    });
    const { relay, seen } = await relayTo(t, "TCP", server);
    for (let turn = 0; turn < 12; turn++) {
      const client = connect({ host: relay.address, port: relay.port, localPort: port });
      await receiveAll(client);
      await until(() => relay.connections === 0);
    }
    assert.deepEqual(seen.refusals, []);
  });
});

describe("a connection that breaks", () => {
  it("is a reset for the client when the endpoint resets, after what was sent before", async (t) => {
    const server = await tcpServer(t, (socket) => {
      socket.write("first part");
      socket.once("data", () => resetSocket(socket));
    });
    const { relay, seen } = await relayTo(t, "TCP", server);
    const client = await tcpClient(t, relay);
    const [first] = await once(client, "data");
    assert.equal(String(first), "first part");
    client.write("go on");
    assert.equal((await receiveAll(client)).error, "ECONNRESET");
    await until(() => relay.connections === 0);
    assert.equal(seen.closed, 1);
  });

  it("is a reset for the endpoint when the client resets", async (t) => {
    const { promise: broken, resolve } = Promise.withResolvers<unknown>();
    const server = await tcpServer(t, (socket) => {
      socket.pipe(socket).on("error", (error: NodeJS.ErrnoException) => resolve(error.code));
    });
    const { relay } = await relayTo(t, "TCP", server);
    const client = await tcpClient(t, relay);
    client.write("x");
    await once(client, "data");
    resetSocket(client);
    assert.equal(await broken, "ECONNRESET");
    await until(() => relay.connections === 0);
  });

  it("in the middle of a transfer is not mistaken for its end", async (t) => {
    const server = await tcpServer(t, (socket) => {
      socket.write(Buffer.alloc(3_000_000), () => resetSocket(socket));
    });
    const { relay } = await relayTo(t, "TCP", server);
    const { error } = await receiveAll(await tcpClient(t, relay));
    assert.equal(error, "ECONNRESET");
    await until(() => relay.connections === 0);
  });

  it("while it is being dialled leaves nothing behind", async (t) => {
    const server = await tcpServer(t, echo);
    const { relay, seen } = await relayTo(t, "TCP", server);
    const clients = await Promise.all(Array.from({ length: 20 }, () => tcpClient(t, relay)));
    for (const client of clients) resetSocket(client);
    await until(() => seen.opened === seen.closed && relay.connections === 0 && server.sockets.size === 0);
  });
});

describe("stopping", () => {
  it("gives the port back at once and lets connections go on", async (t) => {
    const server = await tcpServer(t, echo);
    const { relay } = await relayTo(t, "TCP", server);
    const client = await tcpClient(t, relay);
    client.write("a");
    await once(client, "data");
    await relay.close();
    const again = await relayTo(t, "TCP", server, { port: relay.port });
    assert.equal(await ask(t, again.relay, "new"), "new");
    client.write("b");
    assert.equal(String((await once(client, "data"))[0]), "b");
    assert.deepEqual([relay.connections, again.relay.port], [1, relay.port]);
  });

  it("waits for the end of a transfer", async (t) => {
    const data = randomBytes(5_000_000);
    const server = await tcpServer(t, (socket) => void socket.end(data));
    const { relay } = await relayTo(t, "TCP", server);
    const client = await tcpClient(t, relay);
    const first = await once(client, "data");
    const drained = relay.drain(60_000);
    const rest = await receiveAll(client.end());
    assert.equal(sha(Buffer.concat([first[0], rest.data])), sha(data));
    await drained;
    assert.equal(relay.connections, 0);
  });

  it("cuts what is left after its time, so that it is not taken for the end", async (t) => {
    const server = await tcpServer(t, (socket) => void socket.write(Buffer.alloc(50_000_000)));
    const { relay, seen } = await relayTo(t, "TCP", server);
    const stalled = (await tcpClient(t, relay)).pause();
    const idle = await tcpClient(t, relay);
    await until(() => seen.opened === 2);
    await relay.drain(30);
    assert.deepEqual([relay.connections, seen.closed], [0, 2]);
    assert.equal((await receiveAll(stalled)).error, "ECONNRESET");
    assert.equal((await receiveAll(idle)).error, "ECONNRESET");
  });

  it("may take longer than a timer of Node.js can wait", async (t) => {
    const { relay, seen } = await relayTo(t, "TCP", await tcpServer(t, echo));
    const client = await tcpClient(t, relay);
    await until(() => seen.opened === 1);
    const drained = relay.drain(2 ** 31);
    await sleep(50);
    assert.equal(seen.closed, 0);
    client.end();
    await drained;
  });

  it("is over at once without connections, as often as it is asked for", async (t) => {
    const { relay } = await relayTo(t, "TCP", () => undefined);
    await Promise.all([relay.drain(60_000), relay.drain(60_000), relay.close()]);
  });
});
