/** `kube-proxy flows` with the example cluster and a scripted kernel. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { FlowFilter, LedFlow, TrackedFlow } from "../../src/kernel/conntrack/conntrack.ts";
import type { FlowEvents } from "../../src/kernel/conntrack/netlink-conntrack.ts";
import { NetlinkError } from "../../src/kernel/netlink/errors.ts";
import { servicePortName } from "../../src/model/service-port-name.ts";
import type { Flow } from "../../src/net/flow.ts";
import { familyOf, type IpAddress, parseIpAddress } from "../../src/net/ip.ts";
import { jsonLine, lineSink } from "../../src/tools/cli/flow-sinks.ts";
import { flows } from "../../src/tools/cli/flows.ts";
import { type FlowSource, FlowWatch } from "../../src/tools/cli/flows-watch.ts";
import { isForNodes } from "../../src/tools/cli/on-nodes.ts";
import { FlowNamer, type NamedFlow } from "../../src/tools/explain/flows.ts";
import { daemonAt } from "./inspected-daemon.ts";
import { type Command, examplesAsJson, runCommand } from "./run-command.ts";

function ip(text: string): IpAddress {
  return parseIpAddress(text) ?? assert.fail(text);
}

let nextId = 1;

/** A connection to the example's shop/web. */
function flow(endpoint: string, more: Partial<TrackedFlow> = {}): TrackedFlow {
  nextId += 1;
  return {
    ...{ protocol: "TCP", sourceIP: ip("10.180.0.77"), sourcePort: 40_000 + nextId, id: nextId, state: "ESTABLISHED" },
    ...{ destinationIP: ip("10.96.0.10"), destinationPort: 80, replySourceIP: ip(endpoint), replySourcePort: 8080 },
    ...{
      replyDestinationIP: ip("10.180.0.77"),
      replyDestinationPort: 40_000 + nextId,
      isAnswered: true,
      isAssured: true,
    },
    ...more,
  };
}

/** A kernel with these entries; the test makes its events. */
function kernel(
  entries: readonly TrackedFlow[],
  live: (events: FlowEvents) => Promise<void> = async () => {},
): FlowSource {
  return {
    open: () => ({
      async readFlows(family, _filter, begin) {
        // The table changes, so that an entry is read twice.
        const [first] = entries;
        if (first !== undefined && familyOf(first.sourceIP) === family) begin()(first);
        const visit = begin();
        for (const entry of entries) if (familyOf(entry.sourceIP) === family) visit(entry);
        return true;
      },
      [Symbol.asyncDispose]: async () => {},
    }),
    follow: live,
    ownAddresses: async () => new Set([ip("10.200.0.2")]),
  };
}

async function run(args: readonly string[], source: FlowSource) {
  const command: Command = (argv, output, input) => flows(argv, output, input, source);
  return await runCommand(command, [...args, "-f", "-"], examplesAsJson());
}

const parsed = (text: string) =>
  text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as NamedFlow]));
const WEB = [
  flow("10.180.0.11"),
  flow("10.180.0.99"),
  flow("10.180.0.11", { state: "TIME_WAIT", sent: { packets: 3, bytes: 100 }, received: { packets: 2, bytes: 50 } }),
  flow("10.180.0.11", { destinationIP: ip("192.0.2.1") }),
];

test("connections to Services, each once; those of others are left out", async () => {
  const { out, status } = await run(["-o", "json"], kernel(WEB));
  const told = parsed(out);
  assert.deepEqual([status, told.length], [0, 3]);
  assert.deepEqual(
    told.map(({ isStale, state }) => [isStale, state]),
    [
      [false, "ESTABLISHED"],
      [true, "ESTABLISHED"],
      [false, "TIME_WAIT"],
    ],
  );
  assert.match(String(told[0]?.endpointPod), /^shop\/web/);
  assert.deepEqual(told[2]?.sent, { packets: 3, bytes: 100 });
});

test("a line of JSON is what JSON.stringify writes, without characters that terminals obey", async () => {
  const [whole] = parsed((await run(["-o", "json"], kernel(WEB.slice(2)))).out);
  assert.ok(whole !== undefined);
  const odd = {
    ...whole,
    servicePort: 'a/"b\\:c',
    clientPod: "\u202e",
    rttMs: 0.25,
    retransmits: 3,
    ageSeconds: 7,
  } as const;
  for (const flow of [whole, odd, { ...whole, endpoint: null, sent: null, ended: "refused" as const }]) {
    assert.equal(jsonLine(flow), `${JSON.stringify(flow).replace("\u202e", "\\u202e")}\n`);
  }
});

test("what a slow reader of --watch does not take is lost and counted, and not kept for it", async () => {
  const [whole] = parsed((await run(["-o", "json"], kernel(WEB))).out);
  assert.ok(whole !== undefined);
  for (const isWatching of [true, false]) {
    const notes: string[] = [];
    let [written, taken, lines] = [0, 0, 0];
    const out = (text: string): void => {
      written += text.length;
      lines += text.split("\n").length - 1;
    };
    const output = { out, waiting: () => written - taken };
    const sink = lineSink(output, true, isWatching ? (text) => void notes.push(text) : undefined);
    const told = 100_000;
    for (let count = 0; count < told; count += 1) sink.tell(whole);
    if (isWatching) assert.ok(written > 2 ** 20 && written < 5 * 2 ** 20, `${written} characters wait`);
    taken = written;
    const before = lines;
    sink.tell(whole);
    await sink.close();
    assert.equal(lines, isWatching ? before + 1 : told + 1);
    assert.equal(notes.at(-1), isWatching ? `the reader missed ${told + 1 - lines} of ${told + 1} flows` : undefined);
    if (isWatching) assert.match(notes[0] ?? "", /is too slow: it has missed 1 of \d+ so far/);
    assert.ok(notes.length < 10);
  }
});

test("a choice leaves the others out", async () => {
  const count = async (...args: readonly string[]) =>
    parsed((await run([...args, "-o", "json"], kernel(WEB))).out).length;
  assert.equal(await count("shop/web"), 3);
  assert.equal(await count("shop/web:http"), 3);
  assert.equal(await count("--stale"), 1);
  assert.equal(await count("shop/web:80"), 3);
  for (const state of ["TIME_WAIT", "time_wait", "time-wait"]) assert.equal(await count("--state", state), 1);
  assert.equal(await count("--from", "10.180.0.78"), 0);
  assert.equal(await count("--from", "10.180.0.77"), 3);
  assert.equal(await count("--to", "10.180.0.99"), 1);
  assert.equal(await count("--count", "2"), 2);
});

test("of live, refused and stale connections, just the stale ones are stale", async () => {
  const [own4, own6] = [ip("10.200.0.2"), ip("fd00:10:200::2")];
  const objects = ["IPv4", "IPv6"].flatMap((family) => ({
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: family },
    metadata: { name: `web-${family.toLowerCase()}`, namespace: "a", labels: { "kubernetes.io/service-name": "web" } },
    endpoints: [{ addresses: family === "IPv4" ? ["10.1.0.1"] : ["fd00:1::1"] }],
    ports: [{ name: "p", protocol: "TCP", port: 8080 }],
  }));
  const service = (name: string, last: number, nodePort: number) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { name, namespace: "a" } },
    spec: {
      ...{ type: "NodePort", clusterIP: `10.96.0.${last}`, clusterIPs: [`10.96.0.${last}`, `fd00:96::${last}`] },
      ...{ ipFamilies: ["IPv4", "IPv6"], ports: [{ name: "p", port: 80, nodePort }] },
    },
  });
  const items = [...objects, service("web", 1, 30_001), service("empty", 2, 30_002)];
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  let client = 1000;
  const to = (destination: string, destinationPort: number, reply: string, replySourcePort: number): TrackedFlow => {
    client += 1;
    const [destinationIP, replySourceIP] = [ip(destination), ip(reply)];
    const sourceIP = ip(familyOf(destinationIP) === "IPv4" ? "10.9.0.9" : "fd00:9::9");
    return flow("10.1.0.1", {
      sourceIP,
      sourcePort: client,
      destinationIP,
      destinationPort,
      replySourceIP,
      replySourcePort,
    });
  };
  const live = [
    ...[to("10.96.0.1", 80, "10.1.0.1", 8080), to("fd00:96::1", 80, "fd00:1::1", 8080)],
    ...[to(own4, 30_001, "10.1.0.1", 8080), to(own6, 30_001, "fd00:1::1", 8080)],
  ];
  const refused = [
    ...[to("10.96.0.2", 80, "10.96.0.2", 80), to("fd00:96::2", 80, "fd00:96::2", 80)],
    ...[to(own4, 30_002, own4, 30_002), to(own6, 30_002, own6, 30_002)],
  ].map((one) => ({ ...one, state: "SYN_SENT", isAnswered: false }));
  const gone = [
    ...[to("10.96.0.1", 80, "10.1.0.2", 8080), to("fd00:96::1", 80, "fd00:1::2", 8080)],
    ...[to(own4, 30_001, "10.1.0.1", 8081), to(own6, 30_001, "fd00:1::2", 8080)],
    ...[to(own4, 30_002, "10.1.0.1", 8080), { ...to("10.96.0.2", 80, "10.1.0.1", 8080), state: "SYN_SENT" }],
  ];
  const relayed = [to("10.96.0.1", 80, own4, 41_000), to(own6, 30_001, own6, 41_000)];
  const source = {
    ...kernel([...live, ...refused, ...gone, ...relayed]),
    ownAddresses: async () => new Set([own4, own6]),
  };
  const command: Command = (argv, output, input) => flows(argv, output, input, source);
  const clients = (told: readonly NamedFlow[]) => told.map((one) => Number(one.client.split(":").at(-1))).sort();
  const told = async (...args: readonly string[]) =>
    parsed((await runCommand(command, [...args, "-o", "json", "-f", "-"], list)).out);
  const ports = (flows: readonly TrackedFlow[]) => flows.map(({ sourcePort }) => sourcePort).sort();
  assert.deepEqual(clients(await told("--stale")), ports(gone));
  const all = await told();
  assert.deepEqual(clients(all), ports([...live, ...refused, ...gone, ...relayed]));
  assert.deepEqual(clients(all.filter(({ endpoint }) => endpoint === null)), ports([...refused, ...relayed]));
});

test("a state that no connection has, or only an end", async () => {
  const refusal = async (state: string) => (await run(["--state", state], kernel(WEB))).err;
  assert.match(
    await refusal("ESTABLISHD"),
    /^Error: --state: "ESTABLISHD" is not a state of a connection\nDid you mean ESTABLISHED\?/,
  );
  assert.match(await refusal("refused"), /^Error: --state refused is how connections end: it needs --watch/);
});

test("a table of text has pods, ages and what is not known", async () => {
  const { out } = await run(["shop/web"], kernel(WEB));
  const lines = out.split("\n");
  assert.match(lines[0] ?? "", /^SERVICE PORT +CLIENT +ASKED FOR +ENDPOINT +STATE +AGE +SENT +RECEIVED$/);
  assert.match(
    lines[1] ?? "",
    /^shop\/web:http TCP +10\.180\.0\.77:\d+ +10\.96\.0\.10:80 +10\.180\.0\.11:8080 \(shop\/web-\S+\)/,
  );
  assert.match(lines[2] ?? "", / 10\.180\.0\.99:8080 +ESTABLISHED, stale +\? +\? +\?$/);
  assert.match(lines[3] ?? "", / 100 B in 3 +50 B in 2$/);
});

test("how connections end, as their clients met it", async () => {
  const answered = flow("10.180.0.11", { sent: { packets: 5, bytes: 300 }, received: { packets: 4, bytes: 900 } });
  const ends = [
    answered,
    flow("10.180.0.11", { isAssured: false }),
    flow("10.180.0.11", { isAnswered: false, isAssured: false }),
  ];
  const live = async ({ onBegin, onEnd, signal }: FlowEvents) => {
    for (const one of ends) onBegin(one);
    onBegin(flow("10.180.0.11", { destinationIP: ip("192.0.2.1") }));
    for (const one of ends) onEnd(one);
    assert.ok(signal.aborted, "the count is reached");
  };
  const { out } = await run(["--watch", "--count", "6", "-o", "json"], kernel([], live));
  assert.deepEqual(
    parsed(out).map(({ ended }) => ended),
    [null, null, null, "answered", "refused", "never answered"],
  );
  const { out: text } = await run(["--watch", "--count", "4"], kernel([], live));
  assert.match(
    text,
    /ends {4}shop\/web:http TCP {2}10\.180\.0\.77:\d+ → 10\.96\.0\.10:80 → \S+ \(\S+\) {2}answered {2}after 0 s {2}sent 300 B in 5/,
  );
});

test("what the kernel lost is told from its table", async () => {
  const [known, missed] = [flow("10.180.0.11"), flow("10.180.0.12")];
  const table = [known];
  const live = async ({ onBegin, onLost }: FlowEvents) => {
    onBegin(known);
    await new Promise((resolve) => setTimeout(resolve, 20));
    table.push(missed);
    onLost();
    onLost();
    await new Promise((resolve) => setTimeout(resolve, 50));
    onBegin(missed);
  };
  const { out, err } = await run(["--watch", "-o", "json"], kernel(table, live));
  assert.equal(parsed(out).length, 2);
  assert.match(err, /lost messages 2 times; 1 connection comes from its table/);
});

test("a daemon names Services, and the kernel's refusal is told", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-flows-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  const { state } = daemonAt(t, path);
  const command: Command = (argv, output, input) => flows(argv, output, input, kernel(WEB));
  const { out } = await runCommand(command, ["shop/web", "--socket", path, "-o", "json"]);
  assert.deepEqual(
    parsed(out).map(({ servicePort }) => servicePort),
    ["shop/web:http", "shop/web:http", "shop/web:http"],
  );
  state.leaveOut(
    new Map([["shop/web:http/TCP", new Map([["10.180.0.11:8080", "9 repeated SYNs were not answered"]])]]),
  );
  state.applyChanges();
  const table = (await runCommand(command, ["shop/web", "--socket", path])).out;
  const states = Array.from(table.matchAll(/8080 +(\S.*?) {2}/g), ([, cell]) => cell);
  assert.deepEqual(states, ["ESTABLISHED, left out", "ESTABLISHED, stale", "TIME_WAIT, left out"]);
  const refusing: FlowSource = {
    ...kernel([]),
    open: () => {
      throw new Error("socket: EPERM");
    },
  };
  const refused = await run([], refusing);
  assert.deepEqual([refused.status, refused.out], [2, ""]);
  assert.match(refused.err, /connection tracking cannot be read: socket: EPERM\nIt needs root/);
});

test("a kernel without the module is named, however it refuses", async () => {
  const missing = (code: "EINVAL" | "EPROTONOSUPPORT") =>
    new NetlinkError(code, `netlink: request 1 of 1, type 257: ${code}`);
  const reading: FlowSource = {
    ...kernel([]),
    open: () => ({ readFlows: () => Promise.reject(missing("EINVAL")), [Symbol.asyncDispose]: async () => {} }),
  };
  const unopened: FlowSource = {
    ...kernel([]),
    open: () => {
      throw missing("EPROTONOSUPPORT");
    },
  };
  const watching = kernel([], () => Promise.reject(missing("EINVAL")));
  for (const [source, ...args] of [[reading], [unopened], [watching, "--watch"]] as const) {
    const { status, out, err } = await run(args, source);
    assert.deepEqual([status, out], [2, ""]);
    assert.match(
      err,
      /^Error: connection tracking cannot be read: .*\nThis kernel has no nf_conntrack_netlink: load the module/,
    );
  }
});

test("of 2,000 Services the table is read once, and each connection is named", async () => {
  const many = Array.from({ length: 2_000 }, (_, index) => `10.97.${index >> 8}.${index & 255}`);
  const items = many.map((clusterIP, index) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { name: `s${index}`, namespace: "many" } },
    spec: { clusterIP, ports: [{ name: "p", port: 80 }] },
  }));
  const asked: FlowFilter[] = [];
  const entries = many.map((clusterIP) => flow("10.180.0.11", { destinationIP: ip(clusterIP) }));
  const source: FlowSource = {
    ...kernel(entries),
    open: () => {
      const { readFlows, ...table } = kernel(entries).open();
      const noting: typeof readFlows = async (family, filter, begin) => {
        asked.push(filter);
        return await readFlows(family, filter, begin);
      };
      return { ...table, readFlows: noting };
    },
  };
  const command: Command = (argv, output, input) => flows(argv, output, input, source);
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  const { out } = await runCommand(command, ["-o", "json", "-f", "-"], list);
  assert.deepEqual(
    parsed(out).map(({ servicePort }) => servicePort),
    many.map((_, index) => `many/s${index}:p`),
  );
  assert.deepEqual(asked, [{}, {}]);
  const one = await runCommand(command, ["many/s7", "-o", "json", "-f", "-"], list);
  assert.equal(parsed(one.out).length, 1);
  assert.deepEqual(asked.slice(2), [{ protocol: "TCP", address: "10.97.0.7", port: 80 }]);
});

test("what was led at the socket is told by the daemon", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-flows-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  let led: LedFlow[] = [{ ...flow("10.180.0.12"), socket: "77", rttMs: 0.25, retransmits: 3 }];
  const end = async () => new Set<Flow>();
  daemonAt(t, path, [], [], undefined, {
    read: async (visit) => {
      if (led.length === 0) throw new Error("no right to ask");
      for (const one of led) visit(one);
    },
    end,
  });
  const asking = (source: FlowSource, ...args: readonly string[]) => {
    const command: Command = (argv, output, input) => flows(argv, output, input, source);
    return runCommand(command, ["--socket", path, ...args]);
  };
  const { out } = await asking(kernel(WEB), "shop/web");
  assert.match(out, / RECEIVED +RTT\n.* 10\.180\.0\.12:8080 +ESTABLISHED .* 0\.25 ms, 3 sent again\n/);
  assert.equal(out.split("\n").length, 6);
  // One connection begins and one ends between two looks.
  const later = { ...flow("10.180.0.11"), socket: "78", isAnswered: false };
  const live = async ({ signal }: FlowEvents) => {
    setTimeout(() => {
      led = [later];
    }, 500);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  };
  const { out: watched } = await asking(kernel([], live), "--watch", "--count", "2", "-o", "json");
  assert.deepEqual(
    parsed(watched).map(({ endpoint, ended }) => [endpoint, ended]),
    [
      ["10.180.0.11:8080", null],
      ["10.180.0.12:8080", "answered"],
    ],
  );
  led = [];
  const refused = await asking(kernel(WEB), "shop/web");
  assert.deepEqual([refused.status, refused.err], [2, "Error: the daemon says: no right to ask\n"]);
});

test("a connection that a process takes up late has its endpoint, though names are asked for meanwhile", async () => {
  const name = servicePortName("shop", "web", "http", "TCP");
  const port = {
    name,
    family: "IPv4" as const,
    frontends: [{ address: ip("10.96.0.10"), port: 80, count: { open: null, counted: null } }],
    endpoints: [],
  };
  const choice = { service: undefined, from: undefined, to: undefined, state: undefined, isStale: false };
  const names = { ports: [port], pods: new Map(), own: new Set<IpAddress>(), isEndpointTracked: false };
  const begun = flow("127.0.0.1");
  const carried: LedFlow = {
    ...{ ...begun, replySourceIP: ip("10.180.0.11"), destinationPort: begun.replySourcePort },
    ...{ carriedFor: "shop/web:http", socket: "1" },
  };
  const told: (string | null)[] = [];
  let looks = 0;
  const asked = {
    namer: async () => new FlowNamer(names, choice),
    // Each answer takes longer than names are cached. The relay has the connection from the third answer on.
    led: async () => {
      looks += 1;
      const answer = looks < 3 ? [] : [carried];
      await new Promise((resolve) => setTimeout(resolve, 30));
      return answer;
    },
  };
  const live = async ({ onBegin, signal }: FlowEvents) => {
    onBegin(begun);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  };
  const sink = {
    isFull: false,
    tell({ endpoint }: NamedFlow) {
      told.push(endpoint);
      sink.isFull = true;
    },
    close: async () => {},
  };
  const every = { refreshMs: 5, lookMs: 10 };
  await new FlowWatch(await asked.namer(), {
    asked,
    source: kernel([], live),
    sink,
    note: assert.fail,
    times: every,
  }).run();
  assert.deepEqual(told, ["10.180.0.11:8080"]);
});

test("flows are added to a file, and sent to a collector, which may refuse at first", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-flows-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "flows");
  for (let times = 0; times < 2; times += 1) assert.equal((await run(["--export", path], kernel(WEB))).err, "");
  assert.equal(parsed(readFileSync(path, "utf8")).length, 6);
  const refused = await run(["--export", join(folder, "none", "flows")], kernel(WEB));
  assert.deepEqual([refused.status, refused.out], [2, ""]);
});

test("command lines that cannot be used", async () => {
  for (const [args, message] of [
    [["shop/none"], /there is no Service "shop\/none"\n$/],
    [["shop/wep"], /there is no Service "shop\/wep"\nDid you mean shop\/web\?\n/],
    [["a", "b"], /flows takes one Service, got "b" as well/],
    [["--from", "x"], /--from must be an address, or NAMESPACE\/NAME of a pod/],
    [["-o", "yaml"], /--output must be text or json/],
    [["--count", "-1"], /--count/],
    [["--export", "otlp-http", "http://127.0.0.1:4318"], /otlp-http has been removed\nA collector reads JSON lines/],
    [["shop/web", "--export=otlp-http"], /has been removed/],
  ] as const) {
    const { status, err } = await run(args, kernel(WEB));
    assert.equal(status, 2, String(args));
    assert.match(err, message);
  }
});

test("with objects, --node is this host's name: kubectl is not asked, and another host's is an error", async () => {
  assert.equal(isForNodes("flows", ["--node", "node-a", "-f", "examples"], {}), false);
  assert.equal(isForNodes("flows", ["--node=node-a", "--filename=examples"], { KUBE_PROXY_TS_PLUGIN: "1" }), false);
  assert.equal(isForNodes("flows", ["--node", "node-a"], {}), true);
  const on = async (node: string) =>
    await runCommand(
      (argv, output, input) => flows(argv, output, input, kernel([flow("10.180.0.11")])),
      ["-f", "-", "--node", node],
      examplesAsJson(),
    );
  const here = await on("node-a");
  assert.match(here.out, /shop\/web:http/, here.err);
  const elsewhere = await on("node-b");
  assert.deepEqual([elsewhere.status, elsewhere.out], [2, ""]);
  assert.match(elsewhere.err, /flows -f reads the connections of this host, which has no address of node-b/);
  assert.match((await on("node-x")).err, /there is no Node "node-x"/);
});
