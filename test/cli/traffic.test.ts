/** Counters and connections in `explain` and `services`: the mode's counters and conntrack, in a network namespace. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { ModeCounters } from "../../src/contract/traffic.ts";
import type { TrackedFlow } from "../../src/kernel/conntrack/conntrack.ts";
import { fillFromIpvs } from "../../src/modes/ipvs/counters.ts";
import type { Flow } from "../../src/net/flow.ts";
import { type IpAddress, parseIpAddress } from "../../src/net/ip.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import type { PortExplanation } from "../../src/tools/explain/explanation.ts";
import { countedPort, readOwnFlows, readTraffic } from "../../src/tools/explain/traffic.ts";
import { MemoryIpvs } from "../../testkit/fakes/ipvs/memory-ipvs.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const NODE_A = ["-f", "-", "--family", "ipv4"];

function ip(text: string): IpAddress {
  const parsed = parseIpAddress(text);
  assert.ok(parsed !== undefined, text);
  return parsed;
}

function web() {
  const port = countedPort({
    servicePort: "shop/web:http",
    protocol: "TCP",
    family: "IPv4",
    frontends: [{ at: "10.96.0.10:80" }, { at: "*:30080" }],
    endpoints: [{ address: "10.180.0.11:8080" }, { address: "10.180.1.11:8080" }],
  });
  assert.ok(port !== undefined);
  return port;
}

function countsOf({ frontends, endpoints }: ReturnType<typeof web>) {
  const counts = (list: typeof frontends | typeof endpoints) => list.map(({ count }) => [count.open, count.counted]);
  return { frontends: counts(frontends), endpoints: counts(endpoints) };
}

const counters = (isEndpointTracked: boolean): ModeCounters => ({ isEndpointTracked, fill: async () => [] });

function flow(address: string, port: number, endpointIP: string): Flow {
  const client = ip("10.3.0.1");
  return {
    ...{ protocol: "TCP", sourceIP: client, sourcePort: 4000, destinationIP: ip(address), destinationPort: port },
    ...{ replySourceIP: ip(endpointIP), replySourcePort: 8080, replyDestinationIP: client, replyDestinationPort: 4000 },
  };
}

test("connections are told by what was asked for and who answers; a dump that is repeated begins at zero", async () => {
  const port = web();
  const notes = await readTraffic(counters(true), [port], async (_families, begin) => {
    begin("IPv4")(flow("10.96.0.10", 80, "10.180.0.11"));
    const visit = begin("IPv4");
    visit(flow("10.96.0.10", 80, "10.180.0.11"));
    visit(flow("10.96.0.10", 80, "10.180.0.99")); // an endpoint that is gone
    visit(flow("10.200.0.2", 30080, "10.180.1.11"));
    visit(flow("192.0.2.1", 30080, "192.0.2.9")); // another program's port
    visit(flow("10.96.0.99", 80, "10.180.0.11"));
    return false;
  });
  assert.deepEqual(countsOf(port), {
    frontends: [
      [2, null],
      [1, null],
    ],
    endpoints: [
      [1, null],
      [1, null],
    ],
  });
  assert.deepEqual(notes, ["Connections changed while they were counted: some may be missing."]);
});

test("an endpoint that never answers is named, while others answer", async () => {
  const notesOf = async (...flows: readonly (readonly [string, boolean])[]) => {
    const read = async (_families: unknown, begin: (family: "IPv4") => (flow: TrackedFlow) => void) => {
      const visit = begin("IPv4");
      for (const [endpoint, isAnswered] of flows) visit({ ...flow("10.96.0.10", 80, endpoint), isAnswered });
      return true;
    };
    return await readTraffic(counters(true), [web()], read);
  };
  const silent = Array.from({ length: 3 }, () => ["10.180.1.11", false] as const);
  assert.deepEqual(await notesOf(...silent, ["10.180.0.11", true]), [
    "10.180.1.11:8080 has answered none of its 3 connections of shop/web:http from here, while others are answered.",
  ]);
  assert.deepEqual(await notesOf(...silent, ["10.180.0.11", false]), [], "none is answered: it is not this endpoint");
  assert.deepEqual(await notesOf(...silent, ["10.180.0.11", true], ["10.180.1.11", true]), []);
  assert.deepEqual(await notesOf(...silent.slice(1), ["10.180.0.11", true]), [], "they may just have begun");
});

test("what cannot be known is said, and is no zero", async () => {
  const port = web();
  const failing = {
    isEndpointTracked: true,
    fill: () => Promise.reject(new Error("iptables-save: no such program")),
  };
  const notes = await readTraffic(failing, [port], () => Promise.reject(new Error("EPERM")));
  assert.match(
    notes.join("\n"),
    /^The counts are not known: iptables-save: .*\nOpen connections are not known: conntrack: EPERM/,
  );
  assert.deepEqual(countsOf(port).endpoints, [
    [null, null],
    [null, null],
  ]);
  await readTraffic(counters(false), [port], async (_families, begin) => {
    begin("IPv4")(flow("10.96.0.10", 80, "10.180.0.11"));
    return true;
  });
  assert.deepEqual(countsOf(port).frontends[0], [1, null]);
  assert.deepEqual(countsOf(port).endpoints[0], [null, null]);
});

test("IPVS says what virtual and real servers have counted, and have now", async () => {
  const ipvs = new MemoryIpvs();
  const virtualServer = { address: ip("10.96.0.10"), protocol: "TCP", port: 80 } as const;
  const nodePort = { address: ip("10.200.0.2"), protocol: "TCP", port: 30080 } as const;
  const added = { scheduler: "rr", flags: 0, timeoutSeconds: 0 };
  await ipvs.apply([
    { kind: "add-virtual-server", virtualServer: { ...virtualServer, ...added } },
    { kind: "add-virtual-server", virtualServer: { ...nodePort, ...added } },
    ...[virtualServer, nodePort].map((one) => {
      const realServer = { address: ip("10.180.0.11"), port: 8080, weight: 1 };
      return { kind: "add-real-server", virtualServer: one, realServer } as const;
    }),
  ]);
  ipvs.setConnections(virtualServer, { address: ip("10.180.0.11"), port: 8080 }, { active: 2, inactive: 1 });
  const port = web();
  await fillFromIpvs(ipvs, [port]);
  assert.deepEqual(countsOf(port), {
    frontends: [
      [3, 0],
      [0, 0],
    ],
    endpoints: [
      [3, 3],
      [null, null],
    ],
  });
});

const CONNECTIONS = 12;
const COUNTED: Readonly<Record<string, number>> = {
  "-A KUBE-SERVICES .*-d 10\\.96\\.0\\.10 --dport 80 ": 57,
  "-A KUBE-SEP-\\S+ .*-j DNAT --to-destination 10\\.180\\.0\\.11:8080": 20,
};

inNetns(import.meta.url, { name: "traffic" }, () => {
  test("where the kernel has no rules of kube-proxy, its zeros are no counts of the Service", async () => {
    for (const mode of ["iptables", "nftables", "userspace", "ebpf"]) {
      const args = ["shop/web", "--mode", mode, "--kernel", "--node", "node-a", ...NODE_A];
      const { out, err } = await runCommand(explain, args, EXAMPLES);
      assert.match(err, /^warning: this network namespace has no rules of kube-proxy, so nothing is counted/m, mode);
      assert.doesNotMatch(out, /open|counted/i, mode);
    }
    // A tool that fails tells nothing of them.
    const folder = mkdtempSync(join(tmpdir(), "kpts-tools-"));
    writeFileSync(join(folder, "nft"), "#!/bin/sh\necho denied >&2; exit 1\n", { mode: 0o755 });
    writeFileSync(join(folder, "ip6tables-save"), "#!/bin/sh\necho broken >&2; exit 1\n", { mode: 0o755 });
    const path = process.env.PATH;
    process.env.PATH = `${folder}:${path}`;
    const told = await runCommand(
      explain,
      ["shop/web", "--mode", "iptables", "--kernel", "--node", "node-a", ...NODE_A],
      EXAMPLES,
    );
    const kernel = ["--kernel", "--node", "node-a", "-f", "-"];
    const proof = await runCommand(proveCommand, kernel, EXAMPLES);
    process.env.PATH = path;
    rmSync(folder, { recursive: true });
    const unread = "tables of nftables were not read: nft -j list ruleset: denied";
    assert.ok(told.err.includes(`as far as it could be read (${unread}), so`), told.err);
    assert.equal(proof.status, 2);
    assert.match(proof.err, /^warning: ip6tables-save: broken$/m);
    assert.match(proof.out, new RegExp(`cannot be proved: not all rules are known: ${unread}`));
    assert.doesNotMatch(proof.out, /NOT treat/);
  });

  test("the counters of the real rules, and connections of the real table", async () => {
    const rendered = await runCommand(
      render,
      ["--mode", "iptables", "--hostname-override", "node-a", ...NODE_A],
      EXAMPLES,
    );
    let rules = rendered.out;
    for (const [pattern, packets] of Object.entries(COUNTED)) {
      assert.match(rules, new RegExp(`^${pattern}`, "m"));
      rules = rules.replaceAll(new RegExp(`^${pattern}`, "gm"), (rule) => `[${packets}:${60 * packets}] ${rule}`);
    }
    // Not every kernel has these counters.
    rules = rules
      .split("\n")
      .filter((line) => !line.includes("nfacct"))
      .join("\n");
    execFileSync("iptables-restore", ["-c"], { input: rules, stdio: ["pipe", "ignore", "inherit"] });
    addConnections(500);

    const { status, out, err } = await runCommand(
      explain,
      ["shop/web", "--kernel", "--mode", "iptables", "--node", "node-a", ...NODE_A],
      EXAMPLES,
    );
    assert.deepEqual([status, err], [0, ""]);
    assert.match(out, /^ {2}cluster IP 10\.96\.0\.10:80: 500 open, 57 counted$/m);
    assert.match(out, /^ {2}10\.180\.0\.11:8080 .* 500 +20$/m);
    assert.match(out, /^ {2}10\.180\.1\.11:8080 .* 0 +0$/m);
    assert.match(out, /\nCounted\n {2}Rules count connections since they were written/);
  });

  test("real connections through a cluster IP are counted, each at its endpoint", async (t) => {
    const endpoints = ["10.180.0.11", "10.180.0.12", "10.180.1.11"];
    const links = ["link add eth0 type veth peer name peer0", "link set eth0 up", "addr add 10.200.0.2/24 dev eth0"];
    const batch = [
      ...links,
      "route add default dev eth0",
      ...endpoints.map((address) => `addr add ${address}/32 dev lo`),
    ];
    execFileSync("ip", ["-batch", "-"], { input: `${batch.join("\n")}\n` });
    execFileSync("iptables", ["-t", "nat", "-A", "OUTPUT", "-j", "KUBE-SERVICES"]);
    execFileSync("iptables", ["-t", "nat", "-Z"]);
    execFileSync("conntrack", ["-F"], { stdio: "pipe" });
    const server = createServer((socket) => socket.resume()).listen(8080, "0.0.0.0");
    await once(server, "listening");
    t.after(() => server.close());
    for (let n = 0; n < CONNECTIONS; n += 1) {
      const socket = connect({ host: "10.96.0.10", port: 80 });
      t.after(() => socket.destroy());
      await once(socket, "connect");
    }

    const args = ["shop/web", "--kernel", "--mode", "iptables", "--node", "node-a", "-o", "json", ...NODE_A];
    const { out } = await runCommand(explain, args, EXAMPLES);
    const [port]: readonly PortExplanation[] = JSON.parse(out).servicePorts;
    assert.deepEqual([port?.frontends[0]?.open, port?.frontends[0]?.counted], [CONNECTIONS, CONNECTIONS]);
    const sum = (what: "open" | "counted") => port?.endpoints.reduce((total, one) => total + (one[what] ?? 0), 0);
    assert.deepEqual([sum("open"), sum("counted")], [CONNECTIONS, CONNECTIONS]);
    for (const { open, counted } of port?.endpoints ?? []) assert.equal(open, counted);
  });

  test("one address among very many connections, without keeping them", async () => {
    addConnections(20_000);
    let seen = 0;
    const before = process.memoryUsage().heapUsed;
    await readOwnFlows({})(["IPv4"], () => {
      seen = 0;
      return () => {
        seen += 1;
      };
    });
    assert.equal(seen, 20_000);
    const grown = process.memoryUsage().heapUsed - before;
    assert.ok(grown < 100_000_000, `${grown} bytes`);
  });
});

/** Adds connections from `count` clients through shop/web to one endpoint. */
function addConnections(count: number): void {
  const lines = Array.from({ length: count }, (_, n) => {
    const client = `10.3.${n >> 8}.${n & 255}`;
    return `-I -p tcp -t 600 --state ESTABLISHED -u SEEN_REPLY,ASSURED -s ${client} -d 10.96.0.10 --sport 4000 --dport 80 --dst-nat 10.180.0.11:8080`;
  });
  const folder = mkdtempSync(join(tmpdir(), "kpts-traffic-"));
  try {
    writeFileSync(join(folder, "flows"), lines.join("\n"));
    execFileSync("conntrack", ["-F"], { stdio: "pipe" });
    execFileSync("conntrack", ["-R", join(folder, "flows")], { stdio: "pipe" });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const EXAMPLES = examplesAsJson();
