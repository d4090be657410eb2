import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { memoryConntrack } from "../../../testkit/fakes/conntrack/memory-conntrack.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import type { Flow } from "../../net/flow.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFPROTO_IPV4 } from "../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import type { ConntrackTable, FlowFilter } from "./conntrack.ts";
import { writeDump } from "./ctnetlink.ts";
import { type NetlinkConntrack, openConntrack } from "./netlink-conntrack.ts";
import { statisticsNotes } from "./statistics.ts";

function address(text: string): IpAddress {
  const parsed = parseIpAddress(text);
  assert.ok(parsed !== undefined, text);
  return parsed;
}

/** A flow from a client through a service address to an endpoint. */
function flow(client: string, service: string, endpoint: string, sourcePort: number): Flow {
  return {
    protocol: "UDP",
    sourceIP: address(client),
    sourcePort,
    destinationIP: address(service),
    destinationPort: 53,
    replySourceIP: address(endpoint),
    replySourcePort: 5353,
    replyDestinationIP: address(client),
    replyDestinationPort: sourcePort,
  };
}

const ENDS = [
  ...["protocol", "sourceIP", "sourcePort", "destinationIP", "destinationPort"],
  ...["replySourceIP", "replySourcePort", "replyDestinationIP", "replyDestinationPort"],
];

/** The UDP flows, without the kernel's other facts. */
async function all(table: ConntrackTable, family: IpFamily, filter: FlowFilter = { protocol: "UDP" }): Promise<Flow[]> {
  let seen: Flow[] = [];
  await table.readFlows(family, filter, () => {
    seen = [];
    return (entry) =>
      seen.push(Object.fromEntries(ENDS.map((end) => [end, entry[end as keyof Flow]])) as unknown as Flow);
  });
  return seen;
}

interface Harness {
  readonly table: () => ConntrackTable;
  /** Creates the entry without the table's own methods. */
  readonly create: (entry: Flow, protocol?: "udp" | "tcp") => void;
}

function contract({ table, create }: Harness): void {
  const flows: Record<IpFamily, Flow[]> = {
    IPv4: [flow("10.1.0.1", "172.30.0.10", "10.1.0.9", 4001), flow("10.1.0.2", "172.30.0.10", "10.1.0.9", 4002)],
    IPv6: [flow("fd00::1", "fd00:30::10", "fd00::9", 4001), flow("fd00::2", "fd00:30::10", "fd00::9", 4002)],
  };

  async function list(family: IpFamily): Promise<Flow[]> {
    const seen = await all(table(), family);
    return seen.toSorted((a, b) => a.sourcePort - b.sourcePort);
  }

  for (const family of ["IPv4", "IPv6"] as const) {
    test(`${family}: an empty table has no flows`, async () => {
      assert.deepEqual(await list(family), []);
    });

    test(`${family}: UDP flows are visited with both directions`, async () => {
      for (const entry of flows[family]) create(entry);
      assert.deepEqual(await list(family), flows[family]);
    });

    test(`${family}: exactly the given flow is deleted, once`, async () => {
      const [first, second] = flows[family];
      assert.ok(first !== undefined && second !== undefined);
      assert.equal(await table().deleteFlow(family, first), true);
      assert.deepEqual(await list(family), [second]);
      assert.equal(await table().deleteFlow(family, first), false);
    });

    test(`${family}: a flow that has meanwhile been answered by another endpoint is left alone`, async () => {
      const [, second] = flows[family];
      assert.ok(second !== undefined);
      const stale: Flow = { ...second, replySourcePort: 1111 };
      assert.equal(await table().deleteFlow(family, stale), false);
      assert.deepEqual(await list(family), [second]);
      assert.equal(await table().deleteFlow(family, second), true);
    });
  }
}

describe("conntrack in memory", () => {
  const memory = memoryConntrack();
  contract({ table: () => memory, create: (entry) => memory.add(entry) });
});

function conntrackCreate(entry: Flow, protocol: "udp" | "tcp" = "udp"): void {
  const state = protocol === "tcp" ? ["--state", "ESTABLISHED"] : [];
  execFileSync(
    "conntrack",
    [
      ...["-I", "-p", protocol, "-t", "120", ...state],
      ...["-s", entry.sourceIP, "-d", entry.destinationIP],
      ...["--sport", String(entry.sourcePort), "--dport", String(entry.destinationPort)],
      ...["-r", entry.replySourceIP, "-q", entry.replyDestinationIP],
      ...["--reply-port-src", String(entry.replySourcePort), "--reply-port-dst", String(entry.replyDestinationPort)],
    ],
    { stdio: "pipe" },
  );
}

inNetns(import.meta.url, { name: "conntrack" }, () => {
  describe("the kernel's conntrack", () => {
    let table: NetlinkConntrack;
    before(() => {
      table = openConntrack();
    });
    after(() => table.close());
    contract({ table: () => table, create: conntrackCreate });

    test("flows of other protocols are not visited, and the kernel itself leaves them out", async () => {
      for (let port = 1; port <= 20; port++) conntrackCreate(flow("10.1.0.1", "172.30.0.10", "10.1.0.9", port), "tcp");
      const seen = await all(table, "IPv4");
      assert.deepEqual(seen, []);
      await using socket = NetlinkSocket.open(NETLINK_NETFILTER);
      const request = new MessageBuffer();
      writeDump(request, NFPROTO_IPV4, { protocol: "UDP" });
      let replies = 0;
      await socket.dump(request, () => replies++);
      assert.equal(replies, 0);
    });

    test("entries and the limit are what /proc says, and a table that is full is told in words", async () => {
      const { entries, max, ...lost } = await table.statistics();
      const listed = readFileSync("/proc/sys/net/netfilter/nf_conntrack_count", "utf8");
      assert.equal(entries, Number(listed));
      assert.equal(max, Number(readFileSync("/proc/sys/net/netfilter/nf_conntrack_max", "utf8")));
      assert.deepEqual(lost, { invalid: 0, insertFailed: 0, dropped: 0, earlyDropped: 0 });
      assert.deepEqual(statisticsNotes({ entries, max, ...lost }), []);
      const full = statisticsNotes({ entries: 95, max: 100, ...lost, insertFailed: 1, dropped: 2 });
      assert.match(
        full.join("\n"),
        /95 % full \(95 of 100\).*\n.*it dropped 2 packets and forgot no connection since .*\n.*first packet of 1 connection /,
      );
    });

    test("a flow of real traffic, rewritten by a NAT rule, is seen and deleted", async () => {
      execFileSync("nft", ["-f", "-"], {
        input: `add table ip t
          add chain ip t o { type nat hook output priority -100 ; }
          add rule ip t o ip daddr 127.0.0.77 udp dport 53 dnat to 127.0.0.1:5353`,
      });
      const server = createSocket("udp4");
      const client = createSocket("udp4");
      await new Promise<void>((resolve) => server.bind(5353, "127.0.0.1", resolve));
      server.on("message", (message, peer) => server.send(message, peer.port, peer.address));
      const answered = new Promise((resolve) => client.once("message", resolve));
      client.send("hello", 53, "127.0.0.77");
      await answered;
      const seen = await all(table, "IPv4");
      const found = seen.find((entry) => entry.destinationIP === "127.0.0.77");
      assert.equal(found?.replySourceIP, "127.0.0.1");
      assert.equal(found.replySourcePort, 5353);
      assert.equal(await table.deleteFlow("IPv4", found), true);
      server.close();
      client.close();
    });

    test("one address and port are asked for, of either family", async () => {
      for (const client of ["10.9.0.1", "fd00:9::1"]) {
        const [service, other, endpoint] = client.includes(":")
          ? ["fd00:30::99", "fd00:30::98", "fd00::9"]
          : ["172.30.0.99", "172.30.0.98", "10.1.0.9"];
        const wanted = flow(client, service ?? "", endpoint ?? "", 5001);
        for (const one of [wanted, flow(client, other ?? "", endpoint ?? "", 5002)]) conntrackCreate(one);
        conntrackCreate({ ...flow(client, service ?? "", endpoint ?? "", 5003), destinationPort: 54 });
        const family = client.includes(":") ? "IPv6" : "IPv4";
        const filter = { protocol: "UDP", address: address(service ?? ""), port: 53 } as const;
        assert.deepEqual(await all(table, family, filter), [wanted]);
        for (const one of await all(table, family, {})) await table.deleteFlow(family, one);
      }
    });

    test("a table of thousands of flows is visited in full", async () => {
      const lines = Array.from({ length: 3000 }, (_, n) => {
        const port = 10000 + n;
        return `-I -p udp -t 120 -s 10.2.0.1 -d 172.30.0.10 --sport ${port} --dport 53 -r 10.1.0.9 -q 10.2.0.1 --reply-port-src 53 --reply-port-dst ${port}`;
      });
      const folder = mkdtempSync(join(tmpdir(), "kpts-conntrack-"));
      writeFileSync(join(folder, "flows"), lines.join("\n"));
      execFileSync("conntrack", ["-R", join(folder, "flows")], { stdio: "pipe" });
      rmSync(folder, { recursive: true });
      assert.equal((await all(table, "IPv4")).length, 3000);
    });
  });
});
