import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import type { Flow } from "../../net/flow.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { destroyTcpClients } from "./destroy-tcp.ts";

const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);

function flow(address: string, sourcePort: number, destinationPort: number): Flow {
  return {
    ...{ protocol: "TCP", sourceIP: ip(address), sourcePort, destinationIP: ip(address), destinationPort },
    ...{ replySourceIP: ip(address), replySourcePort: destinationPort },
    ...{ replyDestinationIP: ip(address), replyDestinationPort: sourcePort },
  };
}

async function listening(address: string): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer((socket) => socket.on("error", () => {}));
  await once(server.listen(0, address), "listening");
  return { server, port: (server.address() as AddressInfo).port };
}

inNetns(import.meta.url, { name: "destroy-tcp" }, () => {
  test("an IPv6 socket that is connected to an IPv4 address ends, too", async () => {
    const { server, port } = await listening("127.0.0.1");
    const client = connect(port, "::ffff:127.0.0.1");
    await once(client, "connect");
    const failure = once(client, "error");
    const ended = flow("127.0.0.1", client.localPort ?? 0, port);
    assert.equal((await destroyTcpClients([ended])).size, 1);
    const [error] = (await failure) as [NodeJS.ErrnoException];
    assert.equal(error.code, "ECONNABORTED");
    server.close();
  });

  for (const address of ["127.0.0.1", "::1"]) {
    test(`${address}: the client's socket ends, and no other`, async () => {
      const { server, port } = await listening(address);
      const [one, other] = [connect(port, address), connect(port, address)];
      await Promise.all([once(one, "connect"), once(other, "connect")]);
      const ended = flow(address, one.localPort ?? 0, port);
      assert.equal((await destroyTcpClients([{ ...ended, socket: "1" }])).size, 0, "another socket had these ends");
      const failure = once(one, "error");
      assert.deepEqual([...(await destroyTcpClients([ended, flow(address, 1, port)]))], [ended]);
      const [error] = (await failure) as [NodeJS.ErrnoException];
      assert.equal(error.code, "ECONNABORTED");
      assert.equal(other.destroyed, false);
      other.destroy();
      server.close();
    });

    test(`${address}: a socket that listens at the client's port is left`, async () => {
      const { server, port } = await listening(address);
      assert.equal((await destroyTcpClients([flow(address, port, 9)])).size, 0);
      const client = connect(port, address);
      await once(client, "connect");
      client.destroy();
      server.close();
    });
  }
});
