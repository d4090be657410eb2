/** Many connections, and silent endpoints: in a network namespace, which has its own ports and addresses. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { type TestContext, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { raiseFileLimit } from "../../../src/kernel/file-limit.ts";
import type { IpAddress } from "../../../src/net/ip.ts";
import type { Destination } from "../../../src/relay/relay.ts";
import {
  ask,
  echo,
  exchange,
  LOOPBACK,
  receiveAll,
  relayTo,
  tcpClient,
  tcpServer,
  udpEcho,
  udpSocket,
  until,
} from "../../../src/relay/testing/relay-lab.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";

const SHORT_CONNECTIONS = 10_000;
const AT_A_TIME = 64;
const CONCURRENT = 2_000;
/** One of the client, two of the relay and one of the server, which are all in this process. */
const DESCRIPTORS_EACH = 4;

inNetns(import.meta.url, { name: "relayload", timeoutMs: 120_000 }, () => {
  test("10,000 short connections lose nothing and leave nothing behind", async (t) => {
    const server = await tcpServer(t, echo);
    const { relay, seen } = await relayTo(t, "TCP", server);
    const run = async (count: number): Promise<void> => {
      let next = 0;
      const worker = async (): Promise<void> => {
        for (let index = next++; index < count; index = next++) {
          // The clean-up of a test is a list: it must not grow by ten thousand.
          const own = { after: () => {} };
          assert.equal(await ask(own, relay, `request ${index}`), `request ${index}`);
        }
      };
      await Promise.all(Array.from({ length: AT_A_TIME }, worker));
      await until(() => relay.connections === 0 && server.sockets.size === 0);
    };
    await run(2_000); // until then memory grows to its working size
    const before = { descriptors: descriptors(), memoryMb: memoryMb() };
    await run(SHORT_CONNECTIONS);
    assert.deepEqual([seen.opened, seen.closed], [12_000, 12_000]);
    assert.deepEqual([seen.refusals, seen.dialFailures], [[], []]);
    assert.equal(descriptors(), before.descriptors);
    const grownMb = memoryMb() - before.memoryMb;
    assert.ok(grownMb < 4, `${grownMb.toFixed(1)} MB more than before`);
  });

  test("2,000 connections at once are all served, and give back what they took", async (t) => {
    const needed = CONCURRENT * DESCRIPTORS_EACH + 1000;
    const { limit, problem } = raiseFileLimit(needed);
    if (limit < needed) return t.skip(problem);
    const server = await tcpServer(t, echo);
    const { relay, seen } = await relayTo(t, "TCP", server);
    const before = descriptors();
    const clients = await Promise.all(Array.from({ length: CONCURRENT }, () => tcpClient(t, relay)));
    await until(() => seen.opened === CONCURRENT);
    assert.equal(relay.connections, CONCURRENT);
    assert.equal(descriptors(), before + CONCURRENT * DESCRIPTORS_EACH);
    const answers = clients.map((client, index) => receiveAll(client.end(`${index} `.repeat(5_000))));
    for (const [index, { data }] of (await Promise.all(answers)).entries()) {
      assert.ok(data.toString() === `${index} `.repeat(5_000), `answer ${index}`);
    }
    await until(() => relay.connections === 0 && server.sockets.size === 0);
    await until(() => descriptors() === before);
    assert.deepEqual([seen.closed, seen.refusals], [CONCURRENT, []]);
  });

  test("100 connections at full speed, which take turns, lose nothing", async (t) => {
    const size = 3_000_000;
    const server = await tcpServer(t, (socket) => {
      socket.once("data", (first) => socket.end(Buffer.alloc(size, first)));
    });
    const { relay, seen } = await relayTo(t, "TCP", server);
    const download = async (_: unknown, index: number): Promise<void> => {
      const client = await tcpClient(t, relay);
      const sign = Buffer.of(1 + index);
      client.write(sign);
      const { data } = await receiveAll(client);
      assert.ok(data.equals(Buffer.alloc(size, sign)), `connection ${index}: ${data.length} bytes`);
      client.end();
    };
    await Promise.all(Array.from({ length: 100 }, download));
    await until(() => relay.connections === 0);
    assert.equal(seen.bytes.out, 100 * size);
  });

  test("an endpoint that says nothing is given up in time (userspace.md §1.8)", async (t) => {
    const silent = silentEndpoint();
    const server = await tcpServer(t, echo);
    const { relay, seen } = await relayTo(t, "TCP", (_client, attempt) => (attempt < 3 ? silent : server));
    const startMs = performance.now();
    assert.equal(await ask(t, relay, "slow"), "slow");
    const tookMs = performance.now() - startMs;
    assert.ok(tookMs >= 1750, `${tookMs} ms`);
    assert.deepEqual(seen.dialFailures, [
      "no answer within 250 ms",
      "no answer within 500 ms",
      "no answer within 1000 ms",
    ]);
  });

  test("an endpoint that says nothing holds no other client up", async (t) => {
    const silent = silentEndpoint();
    const server = await tcpServer(t, echo);
    let first: number | undefined;
    const pick = (client: Destination): Destination => {
      first ??= client.port;
      return client.port === first ? silent : server;
    };
    const { relay, seen } = await relayTo(t, "TCP", pick, { dialTimeoutsMs: [600_000] });
    await tcpClient(t, relay);
    await until(() => first !== undefined);
    for (let other = 0; other < 20; other++) assert.equal(await ask(t, relay, "quick"), "quick");
    await until(() => relay.connections === 1);
    assert.deepEqual(seen.dialFailures, [], "the first still waits");
  });

  test("a connection that the kernel makes to itself counts as an address where nothing listens", async (t) => {
    const server = await tcpServer(t, echo);
    // The source port of every connection is this one, so a connection to it meets itself.
    const itself = { address: LOOPBACK, port: 40_001 };
    const { relay, seen } = await relayTo(t, "TCP", (_client, attempt) => (attempt === 0 ? itself : server));
    comeFrom(t, itself.port);
    assert.equal(await ask(t, relay, "hello"), "hello");
    assert.deepEqual(seen.dialFailures, ["the socket connected to itself: nothing listens there"]);
  });

  test("a UDP session does not answer itself where it comes from the port that it asks, and nothing listens there", async (t) => {
    const server = await udpEcho(t);
    const client = await udpSocket(t);
    const itself = { address: LOOPBACK, port: 40_002 };
    const { relay, seen } = await relayTo(t, "UDP", (_client, attempt) => (attempt === 0 ? itself : server));
    comeFrom(t, itself.port);
    assert.equal(String(await exchange(client, relay, "hello")), "hello");
    assert.deepEqual(seen.dialFailures, ["the socket connected to itself: nothing listens there"]);
    assert.deepEqual([seen.opened, relay.connections], [1, 1]);
  });

  test("a stop ends the waiting for an endpoint that says nothing", async (t) => {
    const { relay, seen } = await relayTo(t, "TCP", silentEndpoint(), { dialTimeoutsMs: [60_000] });
    const before = descriptors();
    const client = await tcpClient(t, relay);
    await until(() => relay.connections === 1);
    await relay.drain(0);
    assert.deepEqual([relay.connections, seen.dialFailures, seen.opened, seen.closed], [0, [], 0, 0]);
    assert.equal((await receiveAll(client)).error, "ECONNRESET");
    await until(() => descriptors() === before - 1); // the listening one is gone as well
  });
});

/** From now on the kernel chooses this source port for every outgoing connection. */
function comeFrom(t: TestContext, port: number): void {
  const range = "/proc/sys/net/ipv4/ip_local_port_range";
  const before = readFileSync(range, "utf8");
  t.after(() => writeFileSync(range, before));
  writeFileSync(range, `${port} ${port}`);
}

/** An address at the far end of a link, where nothing answers. */
function silentEndpoint(): Destination {
  const address = "198.51.100.2" as IpAddress;
  const ip = (...args: string[]) => execFileSync("ip", args);
  if (networkInterfaces().near === undefined) {
    ip("link", "add", "near", "type", "veth", "peer", "name", "far");
    ip("address", "add", "198.51.100.1/24", "dev", "near");
    for (const end of ["near", "far"]) ip("link", "set", end, "up");
    ip("neighbour", "add", address, "lladdr", "02:00:00:00:00:01", "dev", "near", "nud", "permanent");
  }
  return { address, port: 80 };
}

/** How many descriptors this process has open. */
function descriptors(): number {
  return readdirSync("/proc/self/fd").length;
}

/** Memory in use after a garbage collection. */
function memoryMb(): number {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1e6;
}
