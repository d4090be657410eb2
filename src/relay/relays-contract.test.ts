/** The contract of the in-memory relays and the real ones. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { MemoryRelays } from "../../testkit/fakes/relay/memory-relays.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { silentLogger } from "../logging/logger.ts";
import type { IpAddress } from "../net/ip.ts";
import { ListenError, type ListenErrorCode } from "./listen-error.ts";
import { NodeRelays } from "./node-relays.ts";
import type { Destination, RelayProtocol, Relays } from "./relay.ts";
import {
  ask,
  echo,
  exchange,
  LOOPBACK,
  LOOPBACK_6,
  relayTo,
  tcpClient,
  tcpServer,
  udpEcho,
  udpSocket,
  until,
} from "./testing/relay-lab.ts";

const ANY = "0.0.0.0" as IpAddress;
const ANY_6 = "::" as IpAddress;
const ELSEWHERE = "192.0.2.1" as IpAddress;
const PROTOCOLS: readonly RelayProtocol[] = ["TCP", "UDP"];

interface Subject {
  readonly relays: Relays;
  /** An endpoint to send to. */
  server(protocol: RelayProtocol): Promise<Destination>;
  /** A client that connects and stays. */
  connect(protocol: RelayProtocol, to: Destination): Promise<void>;
  /** Whether anybody answers there. */
  isServed(protocol: RelayProtocol, to: Destination): Promise<boolean>;
  /** Another program listens. */
  takePort(): Promise<Destination>;
}

function realSubject(t: TestContext): Subject {
  return {
    relays: new NodeRelays({ log: silentLogger, fileLimit: 64_000 }),
    server: (protocol) => (protocol === "TCP" ? tcpServer(t, echo) : udpEcho(t)),
    async connect(protocol, to) {
      if (protocol === "TCP") await tcpClient(t, to);
      else await exchange(await udpSocket(t), to, "hello");
    },
    async isServed(protocol, to) {
      if (protocol === "TCP") return (await ask(t, to, "hello")) === "hello";
      const client = await udpSocket(t, to.address);
      client.connect(to.port, to.address);
      await once(client, "connect");
      const answer = Promise.race([
        once(client, "message").then(
          () => true,
          () => false, // the kernel says that there is no listener
        ),
        new Promise<boolean>((resolve) => setTimeout(resolve, 300, false).unref()),
      ]);
      client.send("hello");
      return await answer;
    },
    async takePort() {
      const { port, server } = await tcpServer(t, echo);
      assert.ok(server.listening);
      return { address: LOOPBACK, port };
    },
  };
}

function memorySubject(): Subject {
  const relays = new MemoryRelays();
  relays.localAddresses = [LOOPBACK, LOOPBACK_6];
  let clients = 0;
  const connect = (protocol: RelayProtocol, { address, port }: Destination): boolean =>
    relays.relayAt(protocol, address, port)?.connect({ address: LOOPBACK, port: ++clients }) !== undefined;
  return {
    relays,
    server: async () => ({ address: LOOPBACK, port: 1 }),
    connect: async (protocol, to) => assert.ok(connect(protocol, to)),
    isServed: async (protocol, to) => connect(protocol, to),
    async takePort() {
      relays.takePort("TCP", LOOPBACK, 2);
      return { address: LOOPBACK, port: 2 };
    },
  };
}

const failsWith = (code: ListenErrorCode, words: RegExp) => (error: unknown) =>
  error instanceof ListenError && error.code === code && words.test(error.message);

// Ports that are requested by number must be free: the test runs in its own network namespace where it can.
if (process.getuid?.() === 0) inNetns(import.meta.url, { name: "relays" }, contract);
else contract();

function contract(): void {
  for (const [name, makeSubject] of [
    ["in memory", memorySubject],
    ["of the system", realSubject],
  ] as const) {
    describe(`relays ${name}`, () => {
      for (const protocol of PROTOCOLS) {
        it(`serve ${protocol} clients until they are closed, and give the port back`, async (t) => {
          const { relays, server, isServed } = makeSubject(t);
          const destination = await server(protocol);
          for (const address of [LOOPBACK, LOOPBACK_6]) {
            const { relay } = await relayTo(t, protocol, destination, { relays, address });
            assert.ok(relay.port > 0);
            assert.deepEqual([relay.protocol, relay.address], [protocol, address]);
            assert.ok(await isServed(protocol, relay));
            await relay.close();
            assert.equal(await isServed(protocol, relay), false);
            const again = await relayTo(t, protocol, destination, { relays, address, port: relay.port });
            assert.equal(again.relay.port, relay.port);
            await relay.close();
            assert.ok(await isServed(protocol, relay), "closing twice does not close what came after");
          }
        });

        it(`do not share a ${protocol} port, whether it is served or held`, async (t) => {
          const { relays } = makeSubject(t);
          const { relay } = await relayTo(t, protocol, () => undefined, { relays });
          const taken = failsWith(
            "port_in_use",
            new RegExp(`^cannot listen on 127.0.0.1:${relay.port}/${protocol}: the port is taken by another socket$`),
          );
          await assert.rejects(
            relayTo(t, protocol, () => undefined, { relays, port: relay.port }),
            taken,
          );
          await assert.rejects(relays.hold(protocol, LOOPBACK, relay.port), taken);
          await relay.close();
          const hold = await relays.hold(protocol, LOOPBACK, relay.port);
          await assert.rejects(
            relayTo(t, protocol, () => undefined, { relays, port: relay.port }),
            taken,
          );
          await assert.rejects(relays.hold(protocol, LOOPBACK, relay.port), taken);
          await hold[Symbol.asyncDispose]();
          await hold[Symbol.asyncDispose]();
          await relayTo(t, protocol, () => undefined, { relays, port: relay.port });
        });

        it(`know that all addresses are those of one family, for ${protocol}`, async (t) => {
          const { relays } = makeSubject(t);
          const { port } = (await relayTo(t, protocol, () => undefined, { relays, address: ANY })).relay;
          const taken = failsWith("port_in_use", /taken/);
          await assert.rejects(
            relayTo(t, protocol, () => undefined, { relays, port }),
            taken,
          );
          await assert.rejects(relays.hold(protocol, LOOPBACK, port), taken);
          await using hold = await relays.hold(protocol, ANY_6, port);
          assert.ok(hold);
          await assert.rejects(
            relayTo(t, protocol, () => undefined, { relays, address: LOOPBACK_6, port }),
            taken,
          );
          const other = protocol === "TCP" ? "UDP" : "TCP";
          await relayTo(t, other, () => undefined, { relays, address: ANY, port });
          await relayTo(t, other, () => undefined, { relays, address: ANY_6, port });
        });

        it(`say so when the address is not on this host, for ${protocol}`, async (t) => {
          const { relays } = makeSubject(t);
          const elsewhere = failsWith("address_not_local", /192\.0\.2\.1.*: the address is not on this host/);
          await assert.rejects(
            relayTo(t, protocol, () => undefined, { relays, address: ELSEWHERE }),
            elsewhere,
          );
          await assert.rejects(relays.hold(protocol, ELSEWHERE, 8080), elsewhere);
        });

        it(`count ${protocol} clients, and end what they should`, async (t) => {
          const { relays, server, connect } = makeSubject(t);
          const destination = await server(protocol);
          const { relay, seen } = await relayTo(t, protocol, destination, { relays });
          for (let client = 1; client <= 3; client++) await connect(protocol, relay);
          await until(() => seen.opened === 3);
          assert.equal(relay.connections, 3);
          await relay.close();
          assert.equal(relay.connections, protocol === "TCP" ? 3 : 0);
          await relay.drain(0);
          assert.deepEqual([relay.connections, seen.closed], [0, seen.opened]);
        });

        it(`tell when there is no endpoint to send ${protocol} to`, async (t) => {
          const { relays, isServed } = makeSubject(t);
          const { relay, seen } = await relayTo(t, protocol, () => undefined, { relays });
          assert.equal(await isServed(protocol, relay), false);
          assert.deepEqual([seen.refusals, seen.opened, relay.connections], [["no endpoint"], 0, 0]);
        });
      }

      it("leave a port to the program that has it", async (t) => {
        const { relays, takePort } = makeSubject(t);
        const { port } = await takePort();
        await assert.rejects(
          relayTo(t, "TCP", () => undefined, { relays, port }),
          { code: "port_in_use" },
        );
        await assert.rejects(relays.hold("TCP", LOOPBACK, port), { code: "port_in_use" });
      });
    });
  }

  describe("a held TCP port", () => {
    it("refuses clients, and other programs cannot listen there", async (t) => {
      const relays = new NodeRelays({ log: silentLogger, fileLimit: 64_000 });
      const { relay } = await relayTo(t, "TCP", () => undefined, { relays });
      await relay.close();
      await using hold = await relays.hold("TCP", LOOPBACK, relay.port);
      assert.ok(hold);
      assert.equal(await ask(t, relay, "anybody?"), "ECONNREFUSED");
      for (const address of [LOOPBACK, ANY]) {
        const server = createServer().listen(relay.port, address);
        await assert.rejects(once(server, "listening"), { code: "EADDRINUSE" });
      }
    });

    it("can be had while the last connections there are still known to the kernel", async (t) => {
      const relays = new NodeRelays({ log: silentLogger, fileLimit: 64_000 });
      const server = await tcpServer(t, (socket) => void socket.end("the server ends first"));
      await ask(t, server, "");
      server.server.close();
      await until(() => server.sockets.size === 0);
      await using hold = await relays.hold("TCP", LOOPBACK, server.port);
      assert.ok(hold);
    });
  });

  describe("relays out of descriptors", () => {
    it("open no more ports, and say why", async (t) => {
      const warnings: string[] = [];
      const log = { ...silentLogger, warn: (message: string) => void warnings.push(message) };
      const relays = new NodeRelays({ log, fileLimit: 54 }); // of which 2 are for relays
      const first = await relayTo(t, "TCP", () => undefined, { relays });
      await using hold = await relays.hold("UDP", LOOPBACK, first.relay.port);
      assert.ok(hold);
      const isOut = failsWith("out_of_descriptors", /: out of file descriptors$/);
      await assert.rejects(
        relayTo(t, "TCP", () => undefined, { relays }),
        isOut,
      );
      await assert.rejects(
        relayTo(t, "UDP", () => undefined, { relays }),
        isOut,
      );
      await assert.rejects(relays.hold("TCP", LOOPBACK, 8080), isOut);
      assert.equal(warnings.length, 1);
      await first.relay.close();
      await relayTo(t, "UDP", () => undefined, { relays });
    });
  });
}
