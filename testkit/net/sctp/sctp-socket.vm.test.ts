import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer, Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { type IpAddress, parseIpAddress } from "../../../src/net/ip.ts";
import { inNetns } from "../../support/in-netns.ts";
import { PATIENCE } from "../../support/patience.ts";
import { bindSctp, connectSctp, hasSctp } from "./sctp-socket.ts";

const PORT = 3868;
const LIMIT_MS = 8000 * PATIENCE;

function ip(text: string): IpAddress {
  const address = parseIpAddress(text);
  assert.ok(address !== undefined);
  return address;
}

/** Answers every client with the address that it sees. */
async function serve(t: TestContext, address: IpAddress): Promise<void> {
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket);
    socket.on("error", () => {});
    socket.once("data", () => socket.end(socket.remoteAddress ?? "nobody"));
  });
  server.listen({ fd: bindSctp({ address, port: PORT }) });
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const socket of accepted) socket.destroy();
  });
}

async function ask(address: IpAddress, from?: IpAddress): Promise<string> {
  const connection = await connectSctp({ address, port: PORT }, LIMIT_MS, from);
  assert.equal(connection.kind, "open", JSON.stringify(connection));
  const socket = new Socket({ fd: connection.fd });
  socket.write("?");
  let text = "";
  for await (const chunk of socket) text += String(chunk);
  return text;
}

inNetns(import.meta.url, { name: "sctp" }, () => {
  test("this kernel has it", () => assert.equal(hasSctp(), true));

  for (const address of ["127.0.0.1", "::1"].map(ip)) {
    test(`an association carries a question and its answer: ${address}`, async (t) => {
      await serve(t, address);
      assert.equal(await ask(address), address);
    });
  }

  test("one source address is used when it is named", async (t) => {
    await serve(t, ip("127.0.0.1"));
    assert.equal(await ask(ip("127.0.0.1"), ip("127.0.0.7")), "127.0.0.7");
    await assert.rejects(ask(ip("127.0.0.1"), ip("192.0.2.1")), /port 0 on 192\.0\.2\.1 is unavailable/);
  });

  test("a port without a server refuses", async () => {
    assert.deepEqual(await connectSctp({ address: ip("127.0.0.1"), port: 9 }, LIMIT_MS), { kind: "refused" });
    assert.deepEqual(await connectSctp({ address: ip("::1"), port: 9 }, LIMIT_MS), { kind: "refused" });
  });

  test("a packet filter's refusal is heard, and its silence is told from it", async (t) => {
    await serve(t, ip("127.0.0.1"));
    for (const tool of ["iptables", "ip6tables"]) {
      execFileSync(tool, ["-A", "INPUT", "-p", "sctp", "--dport", "10", "-j", "REJECT"]);
      execFileSync(tool, ["-A", "INPUT", "-p", "sctp", "--dport", "11", "-j", "DROP"]);
    }
    for (const address of ["127.0.0.1", "::1"].map(ip)) {
      assert.deepEqual(await connectSctp({ address, port: 10 }, LIMIT_MS), { kind: "refused" });
      assert.deepEqual(await connectSctp({ address, port: 11 }, 500), { kind: "timeout" });
    }
  });

  test("hundreds at once, some of them never answered", async (t) => {
    await serve(t, ip("127.0.0.1"));
    execFileSync("iptables", ["-A", "INPUT", "-p", "sctp", "--dport", "12", "-j", "DROP"]);
    const silent = Array.from({ length: 200 }, () => connectSctp({ address: ip("127.0.0.1"), port: 12 }, 3000));
    const answers = await Promise.all(Array.from({ length: 100 }, () => ask(ip("127.0.0.1"))));
    assert.deepEqual(new Set(answers), new Set(["127.0.0.1"]));
    const results = await Promise.all(silent);
    assert.ok(results.every(({ kind }) => kind === "timeout"));
  });

  test("without a route it fails at once, in words", async () => {
    const result = await connectSctp({ address: ip("192.0.2.1"), port: PORT }, LIMIT_MS);
    assert.deepEqual(result, { kind: "failed", detail: "ENETUNREACH" });
  });

  test("a port that is taken cannot be had", async (t) => {
    await serve(t, ip("127.0.0.1"));
    assert.throws(
      () => bindSctp({ address: ip("127.0.0.1"), port: PORT }),
      /SCTP port 3868 on 127\.0\.0\.1 is unavailable/,
    );
  });
});
