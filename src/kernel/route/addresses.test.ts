import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import type { IpAddress } from "../../net/ip.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { localAddresses } from "./addresses.ts";
import { writeAddressDump } from "./rtnetlink.ts";

const ip = (...args: string[]): void => void execFileSync("ip", args);

inNetns(import.meta.url, { name: "addresses" }, () => {
  test("lists all addresses of the family: loopback, down interfaces, secondary and point-to-point ones", async () => {
    ip("link", "add", "d0", "type", "veth", "peer", "name", "d0-peer");
    ip("addr", "add", "10.1.0.5/24", "dev", "d0");
    ip("addr", "add", "10.1.0.6/24", "dev", "d0");
    ip("addr", "add", "192.0.2.1", "peer", "192.0.2.2", "dev", "d0");
    ip("addr", "add", "fd00::5/64", "dev", "d0", "nodad");
    assert.deepEqual(await localAddresses("IPv4"), ["127.0.0.1", "10.1.0.5", "192.0.2.1", "10.1.0.6"]);
    assert.deepEqual(await localAddresses("IPv6"), ["::1", "fd00::5"]);
  });

  test("an address on two interfaces is listed once", async () => {
    ip("link", "add", "d1", "type", "veth", "peer", "name", "d1-peer");
    ip("addr", "add", "10.1.0.5/32", "dev", "d1");
    const addresses = await localAddresses("IPv4");
    assert.equal(addresses.filter((address) => address === "10.1.0.5").length, 1);
  });

  test("more addresses than fit one datagram", async () => {
    ip("link", "add", "d2", "type", "veth", "peer", "name", "d2-peer");
    const lines = Array.from({ length: 2000 }, (_, n) => `addr add 10.9.${n >> 8}.${n & 255}/32 dev d2`);
    execFileSync("ip", ["-batch", "-"], { input: lines.join("\n") });
    const addresses = await localAddresses("IPv4");
    assert.equal(addresses.filter((address) => address.startsWith("10.9.")).length, 2000);
  });

  test("where the kernel has no such family and answers with the other, there are none", async (t) => {
    const { dump } = NetlinkSocket.prototype;
    t.mock.method(
      NetlinkSocket.prototype,
      "dump",
      function (this: NetlinkSocket, ...[, ...rest]: Parameters<typeof dump>) {
        const request = new MessageBuffer(64);
        writeAddressDump(request, "IPv4");
        return dump.call(this, request, ...rest);
      },
    );
    assert.deepEqual(await localAddresses("IPv6"), []);
    assert.ok((await localAddresses("IPv4")).includes("127.0.0.1" as IpAddress));
  });

  test("an aborted signal stops it", async () => {
    await assert.rejects(localAddresses("IPv4", AbortSignal.abort(new Error("stop"))), /stop/);
  });
});
