import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { ownNetnsCookie } from "../netns-cookie.ts";
import { clientSockets } from "./client-sockets.ts";
import { type StaleSocket, udpDisconnector } from "./disconnect-udp.ts";

const remote = parseIpAddress("127.0.0.1") ?? assert.fail();
const remotePort = 9;

inNetns(import.meta.url, { name: "disconnect-udp" }, () => {
  test("a socket that could not be disconnected is not absent", async (t) => {
    const client = createSocket("udp4");
    t.after(() => client.close());
    client.connect(remotePort, remote);
    await once(client, "connect");
    const { port } = client.address();
    const netns = ownNetnsCookie();
    const stale: StaleSocket[] = [{ cookie: 0n, netns, remote, remotePort }];
    for await (const { cookie } of clientSockets("UDP", "IPv4", (one) => one.localPort === port || undefined)) {
      stale.push({ cookie, netns, remote, remotePort });
      break;
    }
    const disconnector = udpDisconnector();
    const exchanged = t.mock.method(NetlinkSocket.prototype, "exchange");
    // The first two list the sockets of both families.
    exchanged.mock.mockImplementationOnce(() => Promise.reject(new Error("no answer")), 2);
    assert.deepEqual(await disconnector.disconnect(stale), ["absent", "unreachable"]);
    exchanged.mock.restore();
    const failure = once(client, "error");
    assert.deepEqual(await disconnector.disconnect(stale), ["absent", "disconnected"]);
    assert.match(String(await failure), /ECONNABORTED/);
  });
});
