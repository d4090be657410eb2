import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs, { readdirSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { constants } from "node:os";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { u32be, writeAttribute, zstring } from "./attributes.ts";
import { NETLINK_NETFILTER, NETLINK_ROUTE, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL } from "./constants.ts";
import { NetlinkError } from "./errors.ts";
import { libc } from "./libc.ts";
import { MessageBuffer } from "./message-buffer.ts";
import {
  beginBatch,
  endBatch,
  NFNL_SUBSYS_NFTABLES,
  NFPROTO_IPV4,
  nfnetlinkPayload,
  putNfnetlink,
} from "./nfnetlink.ts";
import { NetlinkSocket } from "./socket.ts";
import { subscribe } from "./subscription.ts";

const NFT_MSG_NEWTABLE = 0;
const NFT_MSG_GETTABLE = 1;
const NFT_MSG_NEWCHAIN = 3;
const NFT_MSG_GETCHAIN = 4;
const NFT_MSG_DELCHAIN = 5;
const NFT_MSG_NEWGEN = 15;
const NFNLGRP_NFTABLES = 7;

function put(messages: MessageBuffer, message: number, flags: number, ...names: string[]): number {
  const types = message === NFT_MSG_NEWCHAIN || message === NFT_MSG_DELCHAIN ? [1, 3] : [1];
  putNfnetlink(messages, NFNL_SUBSYS_NFTABLES, message, flags, NFPROTO_IPV4, (out) => {
    for (const [position, name] of names.entries()) writeAttribute(out, types[position] ?? 0, zstring, name);
  });
  return messages.count - 1;
}

function batch(fill: (messages: MessageBuffer) => void, generation?: number): MessageBuffer {
  const messages = new MessageBuffer();
  beginBatch(messages, generation);
  fill(messages);
  endBatch(messages);
  return messages;
}

const openFiles = (): number => readdirSync("/proc/self/fd").length;
const listTables = (): string => execFileSync("nft", ["list", "tables"], { encoding: "utf8" });

inNetns(import.meta.url, { name: "nlsocket" }, () => {
  describe("requests", () => {
    let socket: NetlinkSocket;
    before(() => {
      socket = NetlinkSocket.open(NETLINK_NETFILTER);
    });
    after(() => socket.close());

    test("a batch is committed as a whole", async () => {
      const result = await socket.transact(
        batch((messages) => {
          put(messages, NFT_MSG_NEWTABLE, NLM_F_CREATE, "t1");
          put(messages, NFT_MSG_NEWCHAIN, NLM_F_CREATE, "t1", "c1");
        }),
      );
      assert.deepEqual(result, { committed: true });
      assert.match(listTables(), /table ip t1/);
    });

    test("a refused batch changes nothing, and every refused message is named", async () => {
      const result = await socket.transact(
        batch((messages) => {
          put(messages, NFT_MSG_NEWTABLE, NLM_F_CREATE, "t2");
          put(messages, NFT_MSG_NEWCHAIN, NLM_F_CREATE, "absent", "c");
          put(messages, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL, "t1", "c1");
        }),
      );
      assert.ok(!result.committed);
      assert.deepEqual(
        result.errors.map((error) => [error.code, error.facts.request?.index, error.facts.attribute]),
        [
          ["ENOENT", 2, 1],
          ["EEXIST", 3, 3],
        ],
      );
      assert.doesNotMatch(listTables(), /t2/);
    });

    test("a stale generation is refused", async () => {
      const result = await socket.transact(batch((messages) => put(messages, NFT_MSG_NEWTABLE, 0, "t2"), 999));
      assert.ok(!result.committed);
      assert.equal(result.errors[0]?.code, "ERESTART");
    });

    test("a batch whose framing the kernel does not understand is not mistaken for success", async () => {
      const messages = batch((inside) => put(inside, NFT_MSG_NEWTABLE, 0, "t3"));
      messages.patchHostU32(messages.startOf(1), 5);
      const result = await socket.transact(messages);
      assert.ok(!result.committed);
      assert.equal(result.errors[0]?.code, "malformed");
    });

    test("a batch larger than the default send buffer is sent, and the event loop turns meanwhile", async () => {
      const messages = batch((inside) => {
        for (let n = 0; n < 8000; n++) put(inside, NFT_MSG_NEWCHAIN, NLM_F_CREATE, "t1", `chain-${n}`);
      });
      assert.ok(messages.bytes.length > 300_000);
      let turns = 0;
      const timer = setInterval(() => turns++, 1);
      assert.deepEqual(await socket.transact(messages), { committed: true });
      clearInterval(timer);
      assert.ok(turns > 0);
    });

    test("more errors than the receive buffer holds are reported as truncated", async () => {
      const result = await socket.transact(
        batch((messages) => {
          for (let n = 0; n < 3000; n++) put(messages, NFT_MSG_NEWCHAIN, NLM_F_CREATE, "absent", `c${n}`);
        }),
      );
      assert.ok(!result.committed && result.isTruncated);
      assert.equal(result.errors[0]?.code, "ENOENT");
    });

    test("a commit that is acknowledged is none that was refused, though other answers were lost", async (t) => {
      const read = fs.readSync;
      let reads = 0;
      const reading = t.mock.method(fs, "readSync", (...args: Parameters<typeof fs.readSync>) => {
        reads += 1;
        if (reads > 1) return read(...args);
        throw Object.assign(new Error("no buffer space"), { errno: -constants.errno.ENOBUFS });
      });
      syncBuiltinESMExports();
      const result = await socket.transact(batch((messages) => put(messages, NFT_MSG_NEWTABLE, NLM_F_CREATE, "kept")));
      reading.mock.restore();
      syncBuiltinESMExports();
      assert.deepEqual(result, { committed: true });
      assert.match(listTables(), /table ip kept/);
    });

    test("a dump visits all objects, over many datagrams", async () => {
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETCHAIN, NLM_F_DUMP);
      let count = 0;
      await socket.dump(message, (reply) => {
        assert.equal(nfnetlinkPayload(reply).family, NFPROTO_IPV4);
        count++;
      });
      assert.equal(count, 8001);
    });

    test("a commit during a dump makes it `interrupted`, after everything was visited", async () => {
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETCHAIN, NLM_F_DUMP);
      let visited = 0;
      const dump = socket.dump(message, () => {
        if (visited++ === 0) execFileSync("nft", ["add", "table", "ip", "t4"]);
      });
      await assert.rejects(dump, (error) => error instanceof NetlinkError && error.code === "interrupted");
      assert.ok(visited >= 8001);
    });

    test("an aborted dump leaves the socket usable", async () => {
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETCHAIN, NLM_F_DUMP);
      const abort = new AbortController();
      const dump = socket.dump(
        message,
        () => {
          if (abort.signal.aborted) return;
          abort.abort(new Error("enough"));
          const end = performance.now() + 10;
          while (performance.now() < end);
        },
        { signal: abort.signal },
      );
      await assert.rejects(dump, /enough/);
      let count = 0;
      await socket.dump(message, () => count++);
      assert.equal(count, 8001);
    });

    test("a visitor that throws leaves the socket usable", async () => {
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETCHAIN, NLM_F_DUMP);
      const dump = socket.dump(message, () => {
        throw new Error("visitor");
      });
      await assert.rejects(dump, /visitor/);
      await socket.dump(message, () => {});
    });

    test("a failure while no file can be opened is told as it is, and the next request works again", async (t) => {
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETTABLE, 0, "t1");
      const open = t.mock.method(libc(), "socket", () => -1);
      const failing = socket.exchange(message, () => {
        throw new Error("visitor");
      });
      await assert.rejects(failing, /visitor/);
      await assert.rejects(socket.exchange(message), /socket\(AF_NETLINK/);
      open.mock.restore();
      assert.deepEqual(await socket.exchange(message), []);
    });

    test("many requests at once: each error names its request", async () => {
      const messages = new MessageBuffer();
      for (let n = 0; n < 500; n++) put(messages, NFT_MSG_GETTABLE, 0, n % 100 === 7 ? "t1" : "absent");
      let replies = 0;
      const errors = await socket.exchange(messages, () => replies++);
      assert.equal(replies, 5);
      assert.equal(errors.length, 495);
      assert.ok(errors.every((error) => error.code === "ENOENT" && (error.facts.request?.index ?? 0) % 100 !== 7));
    });

    test("operations asked for at the same time take turns", async () => {
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETCHAIN, NLM_F_DUMP);
      const counts = [0, 0, 0];
      await Promise.all(
        counts.map((_, index) => {
          const own = new MessageBuffer();
          put(own, NFT_MSG_GETCHAIN, NLM_F_DUMP);
          return socket.dump(own, () => {
            counts[index] = (counts[index] ?? 0) + 1;
          });
        }),
      );
      assert.deepEqual(counts, [8001, 8001, 8001]);
    });
  });

  describe("lifetime", () => {
    test("closing releases the descriptor and refuses later operations", async () => {
      const before = openFiles();
      const socket = NetlinkSocket.open(NETLINK_ROUTE);
      assert.equal(openFiles(), before + 1);
      await socket.close();
      await socket.close();
      assert.equal(openFiles(), before);
      const message = new MessageBuffer();
      put(message, NFT_MSG_GETTABLE, 0, "t1");
      await assert.rejects(
        socket.exchange(message),
        (error) => error instanceof NetlinkError && error.code === "closed",
      );
    });

    test("an unknown protocol is an error with its errno", () => {
      assert.throws(
        () => NetlinkSocket.open(31),
        (error) => error instanceof NetlinkError && error.code === "EPROTONOSUPPORT",
      );
    });
  });

  describe("subscriptions", () => {
    test("deliver the kernel's notifications until aborted, and release their descriptors", async () => {
      const before = openFiles();
      const abort = new AbortController();
      const seen: number[] = [];
      const { promise: notified, resolve } = Promise.withResolvers<void>();
      const ended = subscribe({
        protocol: NETLINK_NETFILTER,
        groups: [NFNLGRP_NFTABLES],
        signal: abort.signal,
        onOverrun() {},
        onMessage(reply) {
          seen.push(reply.type & 0xff);
          resolve();
        },
      });
      execFileSync("nft", ["add", "table", "ip", "foreign"]);
      await notified;
      assert.ok(seen.includes(NFT_MSG_NEWTABLE));
      abort.abort();
      await ended;
      assert.equal(openFiles(), before);
    });

    test("leave out what a sender caused, also when it has another port", async (t) => {
      const [first, second] = [NetlinkSocket.open(NETLINK_NETFILTER), NetlinkSocket.open(NETLINK_NETFILTER)];
      let own = first;
      const abort = new AbortController();
      t.after(() => abort.abort());
      const seen: (readonly [port: number, message: number])[] = [];
      const ended = subscribe({
        protocol: NETLINK_NETFILTER,
        groups: [NFNLGRP_NFTABLES],
        signal: abort.signal,
        ownPort: () => own.portId,
        onOverrun: assert.fail,
        onMessage: ({ portId, type }) => void seen.push([portId, type & 0xff]),
      });
      const commit = async (by: NetlinkSocket, name: string): Promise<void> => {
        const table = batch((messages) => put(messages, NFT_MSG_NEWTABLE, NLM_F_CREATE, name));
        assert.deepEqual(await by.transact(table), { committed: true });
      };
      const told = async (by: NetlinkSocket, name: string): Promise<void> => {
        const before = seen.length;
        await commit(by, name);
        while (!seen.slice(before).some(([, message]) => message === NFT_MSG_NEWGEN)) await sleep(1);
        const whole = [NFT_MSG_NEWTABLE, NFT_MSG_NEWGEN];
        assert.deepEqual(
          seen.slice(before),
          whole.map((message) => [by.portId, message]),
        );
      };
      await told(second, "filtered1");
      await commit(first, "filtered2");
      await told(second, "filtered3");
      own = second;
      // The subscription notices the new port id after the next notification.
      await told(second, "filtered4");
      await told(first, "filtered5");
      await commit(second, "filtered6");
      await told(first, "filtered7");
      abort.abort();
      await ended;
      await Promise.all([first.close(), second.close()]);
    });

    test("tell of lost notifications", async () => {
      const abort = new AbortController();
      const { promise: lost, resolve } = Promise.withResolvers<void>();
      const ended = subscribe({
        protocol: NETLINK_NETFILTER,
        groups: [NFNLGRP_NFTABLES],
        receiveBufferBytes: 4096,
        signal: abort.signal,
        onOverrun: resolve,
        onMessage() {},
      });
      const input = Array.from({ length: 300 }, (_, n) => `add chain ip foreign c${n}`).join("\n");
      execFileSync("nft", ["-f", "-"], { input });
      await lost;
      abort.abort();
      await ended;
    });

    test("do not hold up the end of the process", () => {
      const program = `
        import { subscribe } from ${JSON.stringify(new URL("./subscription.ts", import.meta.url).href)};
        void subscribe({ protocol: ${NETLINK_NETFILTER}, groups: [${NFNLGRP_NFTABLES}], onMessage() {}, onOverrun() {},
          signal: new AbortController().signal });
        setTimeout(() => process.exit(7), 20);`;
      assert.throws(
        () => execFileSync(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000 }),
        (error) => error instanceof Error && "status" in error && error.status === 7,
      );
    });
  });

  test("a process without CAP_NET_ADMIN is told EPERM", () => {
    const program = `
      import { NetlinkSocket } from ${JSON.stringify(new URL("./socket.ts", import.meta.url).href)};
      import { MessageBuffer } from ${JSON.stringify(new URL("./message-buffer.ts", import.meta.url).href)};
      import { beginBatch, endBatch, putNfnetlink } from ${JSON.stringify(new URL("./nfnetlink.ts", import.meta.url).href)};
      // What is loaded at the first use may be where only root may enter.
      NetlinkSocket.open(${NETLINK_NETFILTER}).close();
      process.setuid(65534);
      const socket = NetlinkSocket.open(${NETLINK_NETFILTER});
      const messages = new MessageBuffer();
      beginBatch(messages);
      putNfnetlink(messages, 10, 0, 0, 2);
      endBatch(messages);
      const result = await socket.transact(messages);
      console.log(String(result.committed ? "committed" : result.errors[0].code));`;
    const output = execFileSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" });
    assert.equal(output.trim(), "EPERM");
  });
});

test("numbers are written as the kernel reads them", () => {
  const messages = new MessageBuffer();
  const write = (out: MessageBuffer): void => writeAttribute(out, 2, u32be, 1);
  putNfnetlink(messages, NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE, 0, NFPROTO_IPV4, write);
  messages.setSequence(1);
  assert.equal(messages.bytes.toString("hex"), "1c000000000a01000100000000000000" + "02000000" + "0800020000000001");
});
