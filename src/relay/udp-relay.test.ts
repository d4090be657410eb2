/** UDP through a relay, with real sockets on the loopback device. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { silentLogger } from "../logging/logger.ts";
import type { IpAddress } from "../net/ip.ts";
import { NodeRelays } from "./node-relays.ts";
import type { Destination } from "./relay.ts";
import { exchange, LOOPBACK, LOOPBACK_6, relayTo, udpEcho, udpSocket, until } from "./testing/relay-lab.ts";

/** The largest payload of a datagram over IPv4. */
const LARGEST_BYTES = 65_507;

describe("datagrams through a UDP relay", () => {
  for (const address of [LOOPBACK, LOOPBACK_6]) {
    it(`come back to the client that sent them, over ${address}`, async (t) => {
      const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t, address), { address });
      const clients = await Promise.all(Array.from({ length: 20 }, () => udpSocket(t, address)));
      const answers = await Promise.all(clients.map((client, index) => exchange(client, relay, `I am ${index}`)));
      assert.deepEqual(
        answers.map(String),
        clients.map((_, index) => `I am ${index}`),
      );
      assert.deepEqual([relay.connections, seen.opened], [20, 20]);
    });
  }

  it("are not cut, however large", async (t) => {
    const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t));
    const client = await udpSocket(t);
    for (const size of [0, 1, 4096, 4097, LARGEST_BYTES]) {
      const data = randomBytes(size);
      assert.ok(data.equals(await exchange(client, relay, data)), `${size} bytes`);
    }
    assert.equal(seen.opened, 1);
    assert.deepEqual(seen.bytes, { in: 8194 + LARGEST_BYTES, out: 8194 + LARGEST_BYTES });
  });

  it("that come while the session is set up are neither lost nor reordered", async (t) => {
    const server = await udpSocket(t);
    const received: string[] = [];
    server.on("message", (message) => received.push(String(message)));
    const { relay } = await relayTo(t, "UDP", { address: LOOPBACK, port: server.address().port });
    const client = await udpSocket(t);
    const sent = Array.from({ length: 100 }, (_, index) => String(index));
    for (const text of sent) client.send(text, relay.port, relay.address);
    await until(() => received.length === sent.length);
    assert.deepEqual(received, sent);
  });

  it("do not go round without end where the endpoint leads back to the relay", async (t) => {
    const relays = new NodeRelays({ log: silentLogger, fileLimit: 1000 });
    let own: Destination | undefined;
    const { relay, seen } = await relayTo(t, "UDP", () => own, { relays });
    own = relay;
    const client = await udpSocket(t);
    for (let round = 1; round <= 2; round++) {
      client.send("hall of mirrors", relay.port, relay.address);
      await until(() => seen.refusals.length === round);
    }
    assert.deepEqual(seen.refusals, Array(2).fill("a loop: the endpoint leads back to this proxy"));
    assert.ok(relay.connections < 100, `${relay.connections} sessions`);
  });

  it("are picked for once per session", async (t) => {
    const [one, other] = [await udpEcho(t), await udpEcho(t)];
    let turn = 0;
    const { relay } = await relayTo(t, "UDP", () => (turn++ % 2 === 0 ? one : other));
    const [a, b] = [await udpSocket(t), await udpSocket(t)];
    for (const client of [a, b, a, b, a]) await exchange(client, relay, "x");
    assert.equal(turn, 2);
  });

  it("without an endpoint are dropped, until there is one", async (t) => {
    const server = await udpEcho(t);
    let isThere = false;
    const { relay, seen } = await relayTo(t, "UDP", () => (isThere ? server : undefined));
    const client = await udpSocket(t);
    client.send("lost", relay.port, relay.address);
    await until(() => seen.refusals.length === 1);
    assert.deepEqual([seen.refusals, relay.connections], [["no endpoint"], 0]);
    isThere = true;
    assert.equal(String(await exchange(client, relay, "found")), "found");
  });
});

describe("a UDP session", () => {
  it("ends when both sides have been silent, and a later datagram begins another", async (t) => {
    const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t), { idleTimeoutMs: 40 });
    const client = await udpSocket(t);
    await exchange(client, relay, "x");
    await until(() => relay.connections === 0);
    assert.deepEqual([seen.opened, seen.closed], [1, 1]);
    await exchange(client, relay, "y");
    assert.equal(seen.opened, 2);
  });

  it("may be silent for longer than a timer of Node.js can wait", async (t) => {
    const { relay } = await relayTo(t, "UDP", await udpEcho(t), { idleTimeoutMs: 2 ** 31 });
    await exchange(await udpSocket(t), relay, "x");
    await sleep(50);
    assert.equal(relay.connections, 1);
  });

  it("lasts as long as one side goes on, whichever it is", async (t) => {
    const server = await udpSocket(t);
    const heard: { port: number; address: string }[] = [];
    server.on("message", (_message, from) => heard.push(from));
    const idleTimeoutMs = 400;
    const { relay, seen } = await relayTo(
      t,
      "UDP",
      { address: LOOPBACK, port: server.address().port },
      { idleTimeoutMs },
    );
    const client = await udpSocket(t);
    const beat = setInterval(() => client.send("x", relay.port, relay.address), 20);
    const startMs = performance.now();
    await until(() => performance.now() - startMs > 2 * idleTimeoutMs);
    clearInterval(beat);
    assert.equal(seen.opened, 1, "the client went on");
    const [session] = heard;
    assert.ok(session);
    const answers = setInterval(() => server.send("y", session.port, session.address), 20);
    const turnMs = performance.now();
    await until(() => performance.now() - turnMs > 2 * idleTimeoutMs);
    clearInterval(answers);
    assert.deepEqual([relay.connections, seen.closed], [1, 0], "the endpoint went on");
    await until(() => relay.connections === 0);
  });

  it("does not end while something waits to be read, however busy the process was", async (t) => {
    const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t), { idleTimeoutMs: 50 });
    const client = await udpSocket(t);
    await exchange(client, relay, "x");
    const answer = exchange(client, relay, "y");
    await new Promise(setImmediate); // it is on its way
    for (const endMs = performance.now() + 100; performance.now() < endMs; );
    assert.equal(String(await answer), "y");
    assert.equal(seen.opened, 1);
  });

  it("ends with its endpoint, and its client's next datagram goes to another", async (t) => {
    const [one, other] = [await udpEcho(t), await udpEcho(t)];
    let current = one;
    const { relay, seen } = await relayTo(t, "UDP", () => current);
    const clients = [await udpSocket(t), await udpSocket(t)];
    for (const client of clients) await exchange(client, relay, "x");
    current = other;
    for (const session of relay.sessions()) session.cut();
    assert.deepEqual([relay.connections, seen.closed], [0, 2]);
    const arrived = once(other.socket, "message");
    clients[0]?.send("y", relay.port, relay.address);
    assert.equal(String((await arrived)[0]), "y");
  });

  it("tries another endpoint after one without a listener", async (t) => {
    const gone = await udpSocket(t);
    const nobody = { address: LOOPBACK, port: gone.address().port };
    gone.close();
    const server = await udpEcho(t);
    const attempts: number[] = [];
    const { relay, seen } = await relayTo(t, "UDP", (_client, attempt) => {
      attempts.push(attempt);
      return attempt === 0 ? nobody : server;
    });
    const client = await udpSocket(t);
    client.send("lost", relay.port, relay.address);
    await until(() => seen.dialFailures.length === 1);
    assert.equal(String(await exchange(client, relay, "found")), "found");
    assert.deepEqual([attempts, seen.dialFailures], [[0, 1], ["ECONNREFUSED"]]);
    assert.deepEqual([relay.connections, seen.opened, seen.closed], [1, 2, 1]);
  });

  it("gives up on endpoints to which there is no way", async (t) => {
    // A socket must ask for permission to broadcast, so connecting fails at once.
    const { relay, seen } = await relayTo(t, "UDP", { address: "255.255.255.255" as IpAddress, port: 9 });
    const client = await udpSocket(t);
    client.send("x", relay.port, relay.address);
    await until(() => seen.refusals.length === 1);
    assert.deepEqual(seen.dialFailures, Array(4).fill("EACCES"));
    assert.deepEqual(seen.refusals, ["failed to connect to an endpoint"]);
  });

  it("is not begun beyond the limit, which is logged once", async (t) => {
    const warnings: string[] = [];
    const log = { ...silentLogger, warn: (message: string) => void warnings.push(message) };
    // Of 72 descriptors, relays get 20, and sessions half of those.
    const relays = new NodeRelays({ log, fileLimit: 72 });
    const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t), { relays });
    const addresses = Array.from({ length: 15 }, (_, index) => `127.0.0.${index + 2}` as IpAddress);
    const clients = await Promise.all(addresses.map((address) => udpSocket(t, address)));
    const served: typeof clients = [];
    for (const client of clients) {
      client.once("message", () => served.push(client));
      client.send("x", relay.port, relay.address);
    }
    await until(() => seen.refusals.length === 5 && served.length === 10);
    assert.deepEqual([seen.opened, relay.connections], [10, 10]);
    assert.deepEqual(seen.refusals, Array(5).fill("out of file descriptors"));
    assert.deepEqual(warnings, ["Too many UDP sessions: datagrams of new clients are dropped"]);
    const [first] = served;
    assert.ok(first);
    assert.equal(String(await exchange(first, relay, "still served")), "still served");
  });

  it("is left to others by a client with many source ports", async (t) => {
    // Room for 10 sessions.
    const relays = new NodeRelays({ log: silentLogger, fileLimit: 72 });
    const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t), { relays, idleTimeoutMs: 300 });
    const greedy = await Promise.all(Array.from({ length: 15 }, () => udpSocket(t)));
    for (const client of greedy) client.send("x", relay.port, relay.address);
    await until(() => seen.opened + seen.refusals.length === 15);
    assert.deepEqual(seen.refusals, Array(10).fill("too many UDP sessions from its address"));
    const other = await udpSocket(t, "127.0.0.2" as IpAddress);
    assert.equal(String(await exchange(other, relay, "I am another")), "I am another");
    await until(() => relay.connections === 0);
    const [first] = greedy;
    assert.ok(first);
    assert.equal(String(await exchange(first, relay, "again")), "again");
  });

  it("ends when the relay closes", async (t) => {
    const { relay, seen } = await relayTo(t, "UDP", await udpEcho(t));
    await exchange(await udpSocket(t), relay, "x");
    await relay.close();
    assert.deepEqual([relay.connections, seen.opened, seen.closed], [0, 1, 1]);
    const again = await relayTo(t, "UDP", await udpEcho(t), { port: relay.port });
    await exchange(await udpSocket(t), again.relay, "y");
    await relay.close();
    await relay.drain(1000);
  });
});
