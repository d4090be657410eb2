/** The page's server: what it answers, and what it refuses. */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { offlineState } from "../../src/contract/inspect/offline-state.ts";
import type { TrackedFlow } from "../../src/kernel/conntrack/conntrack.ts";
import { request } from "../../src/kernel/node-http.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import type { ProxyState } from "../../src/model/proxy-state.ts";
import { IP_FAMILIES, type IpAddress, parseIpAddress } from "../../src/net/ip.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import type {
  ConnectionsAnswer,
  FrontAnswer,
  ServiceAnswer,
  ServiceTable,
  StateAnswer,
  TraceAnswer,
  TraceSteps,
  YamlAnswer,
} from "../../src/tools/page/answers.ts";
import { readAssets } from "../../src/tools/page/assets.ts";
import { isOwnHost } from "../../src/tools/page/guard.ts";
import { examplesAsJson, runCommand } from "../cli/run-command.ts";
import { servedPage, syncRecord } from "./page-daemon.ts";

const { items } = JSON.parse(examplesAsJson()) as { items: unknown[] };

/** The status, headers and text of an answer to any request. */
function answerTo(url: string, headers: Record<string, string> = {}, method = "GET") {
  return new Promise<{ status: number; headers: NodeJS.Dict<string | string[]>; text: string }>((resolve, reject) => {
    const asked = request(url, { headers, method, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
    });
    asked.on("error", reject);
    asked.end();
  });
}

async function json<Answer>(url: string): Promise<Answer> {
  const { status, text } = await answerTo(url);
  assert.equal(status, 200, text);
  return JSON.parse(text) as Answer;
}

const page = (t: TestContext, options = {}) => servedPage(t, { items, ...options });

test("a Service's view says which endpoint is left out as it does not answer, and the others get its share", async (t) => {
  const { url, states } = await page(t);
  const [state] = states;
  const why = "since 2026-01-01T00:00:00Z: 6 of 6 connections unanswered";
  state?.leaveOut(new Map([["shop/web:http/TCP", new Map([["10.180.1.11:8080", why]])]]));
  state?.applyChanges();
  const { families } = await json<ServiceAnswer>(`${url}api/service?key=${encodeURIComponent("shop/web:http/TCP")}`);
  const uses = families[0]?.explanation.endpoints.map(({ address, cluster }) => [address, cluster]);
  assert.deepEqual(uses, [
    ["10.180.0.11:8080", { used: true, share: 0.5, why: "ready" }],
    ["10.180.0.12:8080", { used: true, share: 0.5, why: "ready" }],
    ["10.180.1.11:8080", { used: false, share: 0, why: `node-a leaves it out: ${why}` }],
  ]);
});

test("the document and all that it needs come from here, and weigh less than 150 kB together", async (t) => {
  const { url } = await page(t);
  const assets = await readAssets();
  const bytes = [...assets.values()].reduce((sum, asset) => sum + asset.bytes.length, 0);
  assert.ok(bytes < 150_000, `${bytes} bytes`);
  for (const path of assets.keys()) {
    const { status, headers, text } = await answerTo(`${url.slice(0, -1)}${path}`);
    assert.equal(status, 200, path);
    assert.match(
      String(headers["content-security-policy"]),
      /^default-src 'none'; script-src 'self'; style-src 'self';/,
    );
    assert.equal(headers["cache-control"], "no-store");
    assert.equal(headers["x-content-type-options"], "nosniff");
    // No address of another site, but for the names of XML, and in the licences, which are plain text.
    if (!path.endsWith(".txt")) assert.doesNotMatch(text.replaceAll("http://www.w3.org/", ""), /https?:\/\//, path);
    for (const [, module = ""] of text.matchAll(/from "\.(\/[^"]+)"/g))
      assert.ok(assets.has(module), `${path} needs ${module}`);
  }
});

test("no view makes markup of a text: the browser refuses it, too, where the library could", async (t) => {
  const { url } = await page(t);
  const { headers } = await answerTo(url);
  assert.match(
    String(headers["content-security-policy"]),
    /; require-trusted-types-for 'script'; trusted-types 'none'$/,
  );
  const client = fileURLToPath(new URL("../../src/tools/page/client/", import.meta.url));
  for (const name of readdirSync(client).filter((one) => one.endsWith(".ts"))) {
    const text = readFileSync(join(client, name), "utf8");
    assert.doesNotMatch(text, /innerHTML|insertAdjacentHTML|document\.write/i, name);
  }
});

test("it only reads, and answers to addresses and localhost alone", async (t) => {
  const { url } = await page(t);
  for (const method of ["POST", "PUT", "DELETE", "OPTIONS"]) {
    const { status, headers } = await answerTo(`${url}api/state`, {}, method);
    assert.deepEqual([status, headers.allow], [405, "GET, HEAD"]);
  }
  const rebound = await answerTo(url, { host: "attacker.example:80" });
  assert.deepEqual([rebound.status, /use an IP address or localhost/.test(rebound.text)], [421, true]);
  assert.equal(
    (await answerTo(`${url}api/state`, { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" })).status,
    403,
  );
  const link = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" };
  assert.equal((await answerTo(url, link)).status, 200);
  assert.equal((await answerTo(url, { ...link, "sec-fetch-dest": "document" })).status, 200);
  for (const target of ["iframe", "frame", "object", "embed"]) {
    assert.equal((await answerTo(url, { ...link, "sec-fetch-dest": target })).status, 403, target);
  }
  assert.equal((await answerTo(`${url}api/services`, { ...link, "sec-fetch-dest": "document" })).status, 403);
  assert.equal((await answerTo(`${url}etc/passwd`)).status, 404);
  assert.equal((await answerTo(`${url}../package.json`)).status, 404);
});

test("hosts that no name server can lead here", () => {
  const own = ["127.0.0.1", "127.0.0.1:8080", "[::1]:80", "localhost:10260", "LOCALHOST", "192.168.0.7"];
  const others = [
    undefined,
    "",
    "attacker.example",
    "localhost.attacker.example",
    "127.0.0.1.nip.io",
    "[attacker]",
    "::1",
  ];
  assert.deepEqual(
    own.filter((host) => !isOwnHost(host)),
    [],
  );
  assert.deepEqual(others.filter(isOwnHost), []);
});

test("a problem that is over is told to a page that is open", async (t) => {
  const problem = { severity: "warning" as const, message: "No sets", details: "", count: 1, firstMs: 1, lastMs: 1 };
  const problems = [problem];
  const { url } = await page(t, { problems });
  const first = await answerTo(`${url}api/state`);
  const again = { "if-none-match": String(first.headers.etag) };
  assert.equal((await answerTo(`${url}api/state`, again)).status, 304);
  problems[0] = { ...problem, overMs: 7 } as typeof problem;
  const { status, text } = await answerTo(`${url}api/state`, again);
  assert.deepEqual([status, (JSON.parse(text) as StateAnswer).problems], [200, problems]);
});

test("the state: syncs since the last that is known; 304 while nothing is new", async (t) => {
  const { url, journal } = await page(t);
  journal.add(syncRecord());
  journal.add(syncRecord({ result: "refused", failures: [{ subject: "shop/web", reason: "no space" }] }));
  const first = await answerTo(`${url}api/state?after=1`);
  const { syncs, lastSync, status, zone } = JSON.parse(first.text) as StateAnswer;
  assert.deepEqual([syncs.map(({ number, result }) => [number, result]), lastSync], [[[2, "refused"]], 2]);
  assert.deepEqual([status.node, zone, status.mode, status.families.length], ["node-a", "zone-1", "nftables", 2]);
  // One who knows the syncs of another process knows none of these.
  const ofOther = await json<StateAnswer>(`${url}api/state?after=1&of=77`);
  assert.deepEqual([ofOther.syncs.length, ofOther.startedMs], [2, 1]);
  assert.equal((await json<StateAnswer>(`${url}api/state?after=1&of=1`)).syncs.length, 1);
  const again = { "if-none-match": String(first.headers.etag) };
  assert.equal((await answerTo(`${url}api/state?after=1`, again)).status, 304);
  journal.add(syncRecord());
  assert.equal((await answerTo(`${url}api/state?after=1`, again)).status, 200);
});

test("services are found by type, port in words, pod and node, and those without an answer by is:broken", async (t) => {
  const { url } = await page(t);
  const find = async (search: string) => {
    const { rows } = await json<ServiceTable>(`${url}api/services?search=${encodeURIComponent(search)}`);
    return rows.map(({ service, portName }) => `${service}:${portName}`);
  };
  assert.deepEqual(await find("pod web-3 http"), await find("web-3 http"));
  assert.ok((await find("web-3")).includes("shop/web:http"));
  assert.deepEqual(await find("is:broken"), ["office/legacy:http", "office/legacy:syslog", "office/node-agent:grpc"]);
  assert.deepEqual(await find("is:broken udp"), ["office/legacy:syslog"]);
  const [first = ""] = await find("type:NodePort");
  assert.ok(first !== "" && (await find("nodeport")).includes(first));
  const { rows } = await json<ServiceTable>(`${url}api/services?search=nodeport`);
  assert.ok(rows.every(({ families }) => families.some(({ nodePort }) => nodePort !== 0)));
  const nodePort = rows[0]?.families[0]?.nodePort;
  assert.deepEqual(await find(`node port ${nodePort}`), await find(String(nodePort)));
  assert.deepEqual((await find("node-b")).includes("shop/web:http"), true);
  assert.deepEqual(await find("nowhere-at-all"), []);
});

test("the state is another one where one failure has taken another's place", async (t) => {
  const failures = [{ subject: "watch of services", reason: "refused" }];
  const { url } = await page(t, { failures });
  const state = async (tag: string) => {
    const { status, headers, text } = await answerTo(`${url}api/state`, { "if-none-match": tag });
    const told = status === 304 ? [] : (JSON.parse(text) as StateAnswer).status.failures;
    return { tag: String(headers.etag), told: told.map(({ subject }) => subject) };
  };
  const { tag, told } = await state("");
  assert.deepEqual([told, (await state(tag)).told], [["watch of services"], []]);
  failures.splice(0, 1, { subject: "watch of nodes", reason: "refused" });
  assert.deepEqual((await state(tag)).told, ["watch of nodes"]);
});

test("services are found by name, address, node port and endpoint, and come in portions", async (t) => {
  const { url } = await page(t);
  const find = async (search: string, more = "") => {
    const found = await json<ServiceTable>(`${url}api/services?search=${encodeURIComponent(search)}${more}`);
    return [found.matching, found.rows.map(({ key }) => key)] as const;
  };
  assert.deepEqual(await find("SHOP/web:http"), [1, ["shop/web:http/TCP"]]);
  assert.deepEqual(await find("10.96.0.10:80"), [1, ["shop/web:http/TCP"]]);
  const [byEndpoint] = await find("10.180.0.11:8080");
  assert.ok(byEndpoint >= 1);
  assert.deepEqual(await find("no such service"), [0, []]);
  const [all, firstTwo] = await find("", "&limit=2");
  const [, nextTwo] = await find("", "&limit=2&offset=2");
  assert.ok(all > 4 && firstTwo.length === 2 && nextTwo.length === 2 && !firstTwo.includes(nextTwo[0] ?? ""));
  const troubled = await json<ServiceTable>(`${url}api/services?search=is:broken`);
  assert.ok(troubled.matching > 0 && troubled.matching < all);
  assert.ok(troubled.rows.every(({ trouble }) => trouble !== null));
});

test("a search has sixteen different words at most", async (t) => {
  const { url } = await page(t);
  const words = Array.from({ length: 17 }, (_, index) => `w${index}`);
  const { status, text } = await answerTo(`${url}api/services?search=${words.join("+")}`);
  assert.deepEqual([status, JSON.parse(text)], [400, { error: "Search for 16 words at most, not 17." }]);
  const repeated = await json<ServiceTable>(
    `${url}api/services?search=${Array.from({ length: 3_000 }, () => "web").join("+")}`,
  );
  assert.ok(repeated.matching > 0);
});

test("services are sorted by their columns alone", async (t) => {
  const { url } = await page(t);
  const { rows } = await json<ServiceTable>(`${url}api/services?sort=-pods&limit=2`);
  assert.equal(rows.length, 2);
  for (const sort of ["constructor", "--name", "pods,name"]) {
    const { status, text } = await answerTo(`${url}api/services?sort=${sort}`);
    assert.deepEqual([status, /^\{"error":"Sort by name, type/.test(text)], [400, true], sort);
  }
});

test("ten thousand services are searched in a moment", async (t) => {
  const many = Array.from({ length: 10_000 }, (_, index) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: `n${index % 100}`, name: `s${index}` } },
    spec: { clusterIP: `10.${96 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`, ports: [{ port: 80 }] },
  }));
  const { url } = await servedPage(t, { items: many });
  await json<ServiceTable>(`${url}api/services?search=s1`);
  const before = process.cpuUsage();
  const { matching, rows } = await json<ServiceTable>(`${url}api/services?search=s777`);
  const { user, system } = process.cpuUsage(before);
  assert.deepEqual([matching, rows.length], [11, 11]);
  assert.ok(user + system < 400_000, `${(user + system) / 1000} ms of processor`);
});

test("of very many connections 200 are told, and how many there are; a search looks at all", async (t) => {
  const [client, endpoint, frontend] = ["10.180.0.9", "10.180.0.11", "10.96.0.10"].map((text) => {
    return parseIpAddress(text) ?? assert.fail(text);
  }) as [IpAddress, IpAddress, IpAddress];
  const flows = Array.from({ length: 5_000 }, (_, at): TrackedFlow => {
    const ends = { sourceIP: client, sourcePort: 10_000 + at, destinationIP: frontend, destinationPort: 80 };
    const reply = { replySourceIP: endpoint, replySourcePort: 8080, replyDestinationIP: client };
    return { protocol: "TCP", ...ends, ...reply, replyDestinationPort: 10_000 + at };
  });
  const { url } = await page(t, { flows });
  const all = await json<ConnectionsAnswer>(`${url}api/connections`);
  assert.deepEqual([all.total, all.matching, all.flows.rows.length], [5_000, 5_000, 200]);
  assert.deepEqual(all.counts.rows[0]?.slice(0, 2), ["shop/web:http TCP IPv4", "5000"]);
  assert.deepEqual(Object.fromEntries(all.names), { "shop/web:http": "service", "shop/web-1": "pod" });
  assert.ok(all.pauseMs >= 2_000);
  const one = await json<ConnectionsAnswer>(`${url}api/connections?search=10.180.0.9:14999`);
  assert.deepEqual([one.total, one.matching, one.flows.rows.length], [5_000, 1, 1]);
});

test("who talks to a service: pods by name, others by address, stale endpoints, and of very many clients the busiest", async (t) => {
  const address = (text: string) => parseIpAddress(text) ?? assert.fail(text);
  const flowOf = (client: string, endpoint: string, number: number, frontend = "10.96.0.10"): TrackedFlow => ({
    ...{ protocol: "TCP", sourceIP: address(client), sourcePort: number },
    ...{ destinationIP: address(frontend), destinationPort: 80 },
    ...{ replySourceIP: address(endpoint), replySourcePort: 8080 },
    ...{ replyDestinationIP: address(client), replyDestinationPort: number },
  });
  const crowd = Array.from({ length: 40 }, (_, at) => flowOf(`192.0.2.${at + 1}`, "10.180.0.11", 3_000 + at));
  const busy = [
    ...Array.from({ length: 5 }, (_, at) => flowOf("10.180.0.12", "10.180.1.11", 1_000 + at)),
    ...[flowOf("10.180.0.12", "10.180.9.9", 2_000), flowOf("10.180.9.1", "10.180.0.11", 2_001)],
    // Of another Service.
    flowOf("10.180.9.2", "10.180.0.11", 2_002, "10.96.0.99"),
  ];
  const askedFor = async (flows: readonly TrackedFlow[]) => {
    const { url, end } = await page(t, { flows });
    const asked = `${url}api/service?key=${encodeURIComponent("shop/web:http/TCP")}`;
    const { families } = await json<ServiceAnswer>(`${asked}&traffic=1`);
    assert.equal((await json<ServiceAnswer>(asked)).families[0]?.talks, undefined);
    await end();
    return families.map(({ talks }) => talks);
  };
  assert.deepEqual(await askedFor(busy), [
    [
      ["shop/web-2", "10.180.1.11:8080", 5],
      ["shop/web-2", "10.180.9.9:8080", 1],
      ["10.180.9.1", "10.180.0.11:8080", 1],
    ],
    [],
  ]);
  const [many = []] = await askedFor([...busy, ...crowd]);
  // Twelve clients are named; the other 30 are one.
  assert.deepEqual(
    [new Set(many.map(([client]) => client)).size, many[0], many.reduce((sum, [, , open]) => sum + open, 0)],
    [13, ["all others", "10.180.0.11:8080", 30], 47],
  );
});

test("a Service's YAML has all that the node understood: read again, it is the same", async (t) => {
  const rare = {
    ...{ apiVersion: "v1", kind: "Service" },
    metadata: {
      ...{ namespace: "shop", name: "rare" },
      annotations: { "kube-proxy-ts/balancing": "SourceHash", "kube-proxy-ts/end-tcp": "Gone" },
    },
    spec: {
      ...{ type: "LoadBalancer", clusterIP: "10.96.9.9", clusterIPs: ["10.96.9.9", "fd00:10:96::99"] },
      ...{ ipFamilies: ["IPv4", "IPv6"], externalIPs: ["192.0.2.1", "2001:db8::1"] },
      ports: [
        { name: "web", port: 80, nodePort: 30999 },
        { name: "dns", port: 53, protocol: "UDP", nodePort: 30998 },
      ],
      ...{ sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 77 } } },
      ...{ externalTrafficPolicy: "Local", internalTrafficPolicy: "Local", healthCheckNodePort: 31999 },
      loadBalancerSourceRanges: ["198.51.100.0/24"],
    },
    status: { loadBalancer: { ingress: [{ ip: "203.0.113.9" }] } },
  };
  const slice = {
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
    metadata: {
      ...{ namespace: "shop", name: "rare-1", labels: { "kubernetes.io/service-name": "rare" } },
      annotations: { "kube-proxy-ts/weight": "3" },
    },
    ports: [{ name: "web", port: 8080 }],
    endpoints: [
      { addresses: ["10.180.0.77"], zone: "zone-1", nodeName: "node-a", targetRef: { kind: "Pod", name: "rare-x" } },
    ],
  };
  const { url, states } = await page(t, { items: [...items, rare, slice] });
  const partOf = (all: readonly ProxyState[], service: string) =>
    all.map((state) => [
      [...state.services].filter(([, { name }]) => name.service === service),
      state.slicesOf(service).map((one) => ({ ...one, resourceVersion: "", lastChangeTriggerTime: "" })),
    ]);
  for (const key of new Set(states.flatMap(({ services }) => [...services.keys()]))) {
    const { yaml } = await json<YamlAnswer>(`${url}api/yaml?key=${encodeURIComponent(key)}`);
    const again = parseAllDocuments(yaml).map((document) => document.toJSON());
    const objects = projectObjects([{ apiVersion: "v1", kind: "List", items: again }], "", { keepsPods: true });
    const read = IP_FAMILIES.map((family) => {
      return offlineState(objects, { family, nodeName: "node-a", allowExternalIPs: true, log: silentLogger }).state;
    });
    const service = key.replace(/^([^/]*\/[^/:]*).*$/, "$1");
    assert.deepEqual(partOf(read, service), partOf(states, service), yaml);
    assert.doesNotMatch(yaml, /: (?:\{\}|\[\]|""|0)$/m);
  }
  assert.equal((await answerTo(`${url}api/yaml?key=no/such/TCP`)).status, 404);
  const many = Array.from({ length: 30 }, (_, part) => ({
    ...slice,
    metadata: { ...slice.metadata, name: `rare-${part}` },
    endpoints: Array.from({ length: 100 }, (_, at) => ({ addresses: [`10.180.${part}.${at}`] })),
  }));
  const crowded = await page(t, { items: [rare, ...many] });
  const { yaml } = await json<YamlAnswer>(`${crowded.url}api/yaml?key=${encodeURIComponent("shop/rare:web/TCP")}`);
  assert.match(yaml, /\n# and 20 more EndpointSlices\n$/);
});

test("connections are counted by Service and outcome; what is not known is in no column", async (t) => {
  const [client, endpoint, frontend] = ["10.180.0.9", "10.180.0.11", "10.96.0.10"].map((text) => {
    return parseIpAddress(text) ?? assert.fail(text);
  }) as [IpAddress, IpAddress, IpAddress];
  const seen: Partial<TrackedFlow>[] = [
    { isAnswered: true, isAssured: true, state: "ESTABLISHED" },
    { isAnswered: true, isAssured: false, state: "SYN_RECV" },
    // Answered, and closed later.
    { isAnswered: true, isAssured: true, state: "CLOSE" },
    { isAnswered: true, isAssured: false, state: "CLOSE" },
    { isAnswered: false, isAssured: false, state: "SYN_SENT" },
    {},
  ];
  const flows = seen.map((own, at): TrackedFlow => {
    const ends = { sourceIP: client, sourcePort: 4_000 + at, destinationIP: frontend, destinationPort: 80 };
    const reply = { replySourceIP: endpoint, replySourcePort: 8080, replyDestinationIP: client };
    return { protocol: "TCP", ...ends, ...reply, replyDestinationPort: 4_000 + at, ...own };
  });
  const { url } = await page(t, { flows });
  const { counts } = await json<ConnectionsAnswer>(`${url}api/connections`);
  assert.deepEqual(counts.head, ["SERVICE PORT", "OPEN", "ANSWERED", "NOT ANSWERED", "REFUSED", "COUNTED"]);
  assert.deepEqual(counts.rows[0]?.slice(0, 5), ["shop/web:http TCP IPv4", "6", "3", "1", "1"]);
});

test("a service whose port is another's node port, by whose number ipvs mode masquerades", async (t) => {
  const changed = JSON.parse(examplesAsJson()).items;
  for (const { kind, metadata, spec } of changed) {
    if (kind === "Service" && metadata.name === "web") spec.ports[0].port = 30080;
  }
  const { url } = await servedPage(t, { items: changed, mode: "ipvs" });
  const { families } = await json<ServiceAnswer>(`${url}api/service?key=${encodeURIComponent("shop/web:http/TCP")}`);
  const [pod] = families[0]?.explanation.frontends[0]?.clients ?? [];
  assert.deepEqual([pod?.position, pod?.source], ["pod", "masqueraded"]);
});

test("one service: explained for each family, with its slices; unknown ones are refused in words", async (t) => {
  const { url } = await page(t);
  const { families } = await json<ServiceAnswer>(`${url}api/service?key=${encodeURIComponent("shop/web:http/TCP")}`);
  const [ipv4] = families;
  assert.equal(ipv4?.explanation.family, "IPv4");
  assert.ok(ipv4?.explanation.endpoints.some(({ slice, node }) => slice !== "" && node === "node-b"));
  assert.ok(ipv4?.explanation.kernel.length > 0);
  const { status, text } = await answerTo(`${url}api/service?key=shop%2Fnothing%2FTCP`);
  assert.deepEqual([status, JSON.parse(text)], [404, { error: "This node serves no service port shop/nothing/TCP." }]);
});

for (const mode of ["nftables", "iptables", "ipvs"]) {
  test(`${mode}: a packet's way to a service, by the odds of its endpoints; and to nowhere`, async (t) => {
    const { url } = await page(t, { mode });
    const query = "from=pod&to=10.96.0.10&port=80&protocol=tcp";
    const { outcomes, steps, rules } = await json<TraceAnswer>(`${url}api/trace?${query}`);
    assert.equal(rules, `the plan of mode ${mode} for node-a; an address of shop/web:http`);
    assert.ok(outcomes.length >= 3 && outcomes.every(({ text }) => /sent to/.test(text)), JSON.stringify(outcomes));
    assert.ok(steps.steps.some(({ kind }) => kind === "stage"));
    const nowhere = await json<TraceAnswer>(`${url}api/trace?from=node&to=192.0.2.1&port=9`);
    assert.match(nowhere.rules, /; no service has this address and port$/);
  });
}

/** Services around those of the examples, with an endpoint each. */
function manyServices(count: number): unknown[] {
  return Array.from({ length: count }, (_, index) => {
    const metadata = { namespace: index % 2 === 0 ? "aaa" : "zzz", name: `s${index}` };
    const labels = { "kubernetes.io/service-name": metadata.name };
    return [
      {
        ...{ apiVersion: "v1", kind: "Service", metadata },
        spec: { type: "NodePort", clusterIP: `10.98.0.${index}`, ports: [{ port: 80, nodePort: 31_000 + index }] },
      },
      {
        ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { ...metadata, labels } },
        ...{ addressType: "IPv4", ports: [{ port: 8080, protocol: "TCP", name: "" }] },
        endpoints: [{ addresses: [`10.181.0.${index}`], conditions: { ready: true } }],
      },
    ];
  }).flat();
}

/** What steps say, however deep; of branches the first: `trace` shows once what is the same. */
function stepTexts({ steps, branches }: TraceSteps): string[] {
  const own = steps.filter(({ kind }) => kind === "match" || kind === "no-match").map(({ text }) => text);
  const skipped = steps.filter(({ text }) => / rules are for other addresses/.test(text)).map(({ text }) => text);
  return [...own, ...skipped, ...branches.slice(0, 1).flatMap(({ way }) => stepTexts(way))];
}

for (const mode of ["iptables", "userspace", "nftables"]) {
  test(`${mode}: among many services, rules have the places that trace gives them`, async (t) => {
    const all = [...items, ...manyServices(90)];
    const { url } = await page(t, { mode, items: all });
    const manifests = JSON.stringify({ apiVersion: "v1", kind: "List", items: all });
    // As the daemon's: it detects no pods.
    const config = join(mkdtempSync(join(tmpdir(), "kpts-page-")), "config.yaml");
    t.after(() => rmSync(dirname(config), { recursive: true }));
    writeFileSync(config, "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n");
    for (const [from, to, port] of [
      ["outside", "10.200.0.2", "30080"],
      ["pod", "10.96.0.10", "80"],
    ] as const) {
      const { steps } = await json<TraceAnswer>(`${url}api/trace?from=${from}&to=${to}&port=${port}&verbose=1`);
      const asked = [
        "--from",
        from,
        "--to",
        `${to}:${port}`,
        "-f",
        "-",
        "--mode",
        mode,
        "--config",
        config,
        "--node",
        "node-a",
        "-v",
      ];
      const { status, out, err } = await runCommand(trace, asked, manifests);
      assert.equal(status, 0, err);
      const texts = stepTexts(steps);
      assert.ok(texts.length > 3, JSON.stringify(texts));
      for (const text of texts) assert.ok(out.includes(`${text}\n`), `${text} is not in\n${out}`);
      if (mode !== "nftables") assert.match(texts.join("\n"), / \d{2,3}: .*shop\/web/);
    }
  });
}

test("an endpoint whose answer the client does not know is no good end", async (t) => {
  const { url } = await page(t);
  const { steps } = await json<TraceAnswer>(`${url}api/trace?from=outside&to=10.96.0.10&port=80`);
  const ends = ({ fate, isGood, branches }: TraceSteps): (readonly [string, boolean])[] =>
    fate === null ? branches.flatMap(({ way }) => ends(way)) : [[fate, isGood]];
  const [lost, kept] = [/its answer bypasses this node/, /sent to 10\.180\.0\.1[12]/].map((wanted) =>
    ends(steps).filter(([fate]) => wanted.test(fate)),
  );
  assert.deepEqual(
    [lost, kept].map((found) => [...new Set(found?.map(([, isGood]) => isGood))]),
    [[false], [true]],
  );
});

test("an address of the node that takes no node ports is no Service's", async (t) => {
  const at = async (nodePortAddresses: readonly string[]) => {
    const { url } = await page(t, { settings: { nodePortAddresses } });
    return (await json<TraceAnswer>(`${url}api/trace?from=outside&to=10.200.0.2&port=30080`)).rules;
  };
  assert.match(await at(["10.200.0.0/24"]), /; an address of shop\/web-node-port:http$/);
  assert.match(await at(["192.0.2.0/24"]), /; no service has this address and port$/);
});

test("a pod of this node by its address comes in where its pods do", async (t) => {
  const settings = { detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "cni0" } };
  const { url } = await page(t, { settings });
  const { packet, outcomes } = await json<TraceAnswer>(`${url}api/trace?from=10.180.0.9&to=10.96.0.10&port=80`);
  assert.match(packet, /coming in by cni0/);
  assert.ok(outcomes.every(({ assumptions }) => !assumptions.join().includes("cni0")));
});

test("an external IP that is the node's own goes before a node port of its number", async (t) => {
  const metadata = { namespace: "shop", name: "other" };
  const spec = { clusterIP: "10.96.9.9", externalIPs: ["10.200.0.2"], ports: [{ port: 30080 }] };
  const { url } = await page(t, { items: [...items, { apiVersion: "v1", kind: "Service", metadata, spec }] });
  const { rules } = await json<TraceAnswer>(`${url}api/trace?from=outside&to=10.200.0.2&port=30080`);
  assert.match(rules, /; an address of shop\/other$/);
});

test("userspace without rules: what the host does not have leaves it", async (t) => {
  const { url, daemon } = await page(t, { mode: "userspace" });
  Object.assign(daemon.config.userspace, { rules: "none" });
  const { outcomes } = await json<TraceAnswer>(`${url}api/trace?from=pod&to=10.96.0.10&port=80`);
  assert.match(
    outcomes.map(({ text }) => text).join(),
    /^not sent to an endpoint: 10\.96\.0\.10 is an address of shop\/web/,
  );
});

test("ebpf: a socket of the node asks for an endpoint", async (t) => {
  const { url } = await page(t, { mode: "ebpf" });
  const { outcomes } = await json<TraceAnswer>(`${url}api/trace?from=node&to=10.96.0.10&port=80`);
  assert.match(outcomes[0]?.text ?? "", /^sent to 10\..*:8080, from .* \(kept\)$/);
});

test("ipvs: the node sends to the address of a Service from that address", async (t) => {
  const { url } = await page(t, { mode: "ipvs" });
  const { packet } = await json<TraceAnswer>(`${url}api/trace?from=node&to=10.96.0.10&port=80`);
  assert.match(packet, /^tcp 10\.96\.0\.10 to 10\.96\.0\.10:80, from the node itself/);
});

test("a packet's destination is named as in the commands", async (t) => {
  const { url } = await page(t);
  for (const query of [
    "to=shop/web:http&port=",
    "to=web.shop&port=80",
    "to=http://web.shop/cart&port=",
    "to=svc/web.shop.svc&port=http",
    "to=10.96.0.10:80&port=",
    "to=10.96.0.10&port=http",
    "to=shop/web&port=",
  ]) {
    const { packet } = await json<TraceAnswer>(`${url}api/trace?from=outside&${query}`);
    assert.match(packet, / to 10\.96\.0\.10:80, /, query);
  }
});

test("without pods' names, a client's is refused with what makes the daemon keep them", async (t) => {
  const { url } = await page(t, { items: items.filter((item) => (item as { kind: string }).kind !== "EndpointSlice") });
  const { status, text } = await answerTo(`${url}api/trace?from=shop/web-1&to=10.96.0.1&port=443`);
  assert.equal(status, 400);
  assert.match(JSON.parse(text).error, / No pod is known: .* only with --inspect-bind-address\.$/);
});

test("a packet's ends are pods and nodes by their names, as in the commands", async (t) => {
  const slice = (namespace: string, service: string, addressType: string, endpoints: object[]) => ({
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType },
    metadata: {
      namespace,
      name: `${service}-${addressType.toLowerCase()}`,
      labels: { "kubernetes.io/service-name": service },
    },
    ports: [{ name: "p", port: 8080, protocol: "TCP" }],
    endpoints,
  });
  const pod = (namespace: string, name: string, address: string, nodeName: string) => ({
    ...{ addresses: [address], nodeName, conditions: { ready: true } },
    targetRef: { kind: "Pod", namespace, name },
  });
  const service = (namespace: string, name: string, clusterIPs: string[], ports: object[]) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace, name } },
    spec: { clusterIP: clusterIPs[0], clusterIPs, ports },
  });
  const { url } = await servedPage(t, {
    items: [
      ...items.filter((one) => (one as { kind: string }).kind === "Node"),
      service("a", "dual", ["10.96.5.1", "fd00:96::51"], [{ name: "p", port: 80 }]),
      slice("a", "dual", "IPv4", [
        pod("a", "dual-0", "10.180.0.41", "node-a"),
        pod("a", "dual-1.x", "10.180.1.41", "node-b"),
      ]),
      slice("a", "dual", "IPv6", [
        pod("a", "dual-0", "fd00:180::41", "node-a"),
        pod("a", "six", "fd00:180::6", "node-a"),
      ]),
      service(
        "b",
        "dual",
        ["10.96.5.2"],
        [
          { name: "t", port: 53 },
          { name: "u", port: 53, protocol: "UDP" },
        ],
      ),
      slice("b", "dual", "IPv4", [pod("b", "dual-0", "10.180.0.42", "node-a")]),
    ],
  });
  const answer = async (query: string) => await json<TraceAnswer>(`${url}api/trace?${query}`);
  const { names } = await answer("from=a/dual-0&to=b/dual:53");
  assert.deepEqual(names, [
    ["a/dual-0", "pod"],
    ["node-a", "node"],
    ["b/dual:t", "service"],
  ]);
  for (const [query, way] of [
    ["from=a/dual-0&to=b/dual:53", "tcp 10.180.0.41 to 10.96.5.2:53"],
    ["from=pod/a/dual-0&to=b/dual:53/udp", "udp 10.180.0.41 to 10.96.5.2:53"],
    ["from=dual-0.a&to=b/dual&port=53&protocol=udp", "udp 10.180.0.41 to 10.96.5.2:53"],
    ["from=dual-1.x&to=pod/dual-1.x&port=8080", "tcp 10.180.1.41 to 10.180.1.41:8080"],
    ["from=outside&to=a/dual-0:8080", "tcp 203.0.113.77 to 10.180.0.41:8080"],
    ["from=six&to=a/dual", "tcp fd00:180::6 to [fd00:96::51]:80"],
    ["from=six&to=pod/a/dual-0:8080", "tcp fd00:180::6 to [fd00:180::41]:8080"],
    ["from=node-a&to=a/dual&port=p", "tcp 10.200.0.2 to 10.96.5.1:80"],
    ["from=outside&to=node-a:30080", "tcp 203.0.113.77 to 10.200.0.2:30080"],
    ["from=outside&to=node/node-a&port=30080", "tcp 203.0.113.77 to 10.200.0.2:30080"],
  ] as const) {
    const { packet } = await answer(query);
    assert.ok(packet.startsWith(`${way},`), `${query}: ${packet}`);
  }
  const { notes } = await answer("from=pod/dual-1.x&to=a/dual-0:8080");
  assert.deepEqual(notes.slice(0, 2), [
    "a/dual-1.x is 10.180.1.41, on node-b",
    "a/dual-0 is 10.180.0.41 and fd00:180::41, on node-a",
  ]);
  const refusal = async (query: string) =>
    (JSON.parse((await answerTo(`${url}api/trace?${query}`)).text) as { error: string }).error;
  assert.equal(
    await refusal("from=dual-0&to=a/dual"),
    '"dual-0" could be a/dual-0, b/dual-0: enter its namespace too.',
  );
  assert.equal(await refusal("from=pod&to=dual"), '"dual" could be a/dual, b/dual: enter its namespace too.');
  assert.equal(await refusal("from=pod&to=a/dual-0"), '"" is not a port: enter a number from 1 to 65535.');
  assert.match(await refusal("from=node-b&to=a/dual"), /^"node-b" is not a client/);
  assert.equal(await refusal("from=six&to=a/dual-1.x:8080"), "Client and destination are of different families.");
});

test("questions about packets that cannot be answered say what to do", async (t) => {
  const { url } = await page(t);
  const refusal = async (query: string) => {
    const { status, text } = await answerTo(`${url}api/trace?${query}`);
    return [status, (JSON.parse(text) as { error: string }).error];
  };
  assert.deepEqual(await refusal("from=pod&to=wbe&port=80"), [
    400,
    'There is no Service "wbe" here: enter an address, or NAMESPACE/NAME:PORT.',
  ]);
  assert.deepEqual(await refusal("from=pod&to=shop/web:htp&port="), [
    400,
    '"shop/web:htp" has no port "htp", but http.',
  ]);
  assert.deepEqual(await refusal("from=pod&to=10.96.0.10&port=0"), [
    400,
    '"0" is not a port: enter a number from 1 to 65535.',
  ]);
  assert.deepEqual(await refusal("from=me&to=10.96.0.10&port=80"), [
    400,
    '"me" is not a client: enter a pod\'s name, an address, or pod, node, outside.',
  ]);
  assert.deepEqual(await refusal("from=::1&to=10.96.0.10&port=80"), [
    400,
    "Client and destination are of different families.",
  ]);
});

test("the front counts Services, not ports or families, and says of the wrong ones why, gravest first", async (t) => {
  const slice = (name: string, family: string, address: string, isReady = true, nodeName = "node-a") => ({
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: family },
    metadata: {
      namespace: "n",
      name: `${name}-${family.toLowerCase()}`,
      labels: { "kubernetes.io/service-name": name },
    },
    ports: [{ name: "a", port: 8080 }],
    endpoints: [{ addresses: [address], nodeName, conditions: { ready: isReady } }],
  });
  const service = (name: string, spec: object) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "n", name } },
    spec: { ports: [{ name: "a", port: 80 }], ...spec },
  });
  const local = { type: "NodePort", externalTrafficPolicy: "Local" };
  const { url } = await servedPage(t, {
    items: [
      service("well", { clusterIP: "10.96.1.1" }),
      slice("well", "IPv4", "10.180.0.1"),
      service("dual", {
        clusterIP: "10.96.1.2",
        clusterIPs: ["10.96.1.2", "fd00:10:96::2"],
        ipFamilies: ["IPv4", "IPv6"],
      }),
      slice("dual", "IPv4", "10.180.0.2"),
      service("away", { clusterIP: "10.96.1.3", ports: [{ name: "a", port: 80, nodePort: 30001 }], ...local }),
      slice("away", "IPv4", "10.180.1.3", true, "node-b"),
      service("empty", { clusterIP: "10.96.1.4", ports: ["a", "b"].map((name, at) => ({ name, port: 80 + at })) }),
      service("refused", { clusterIP: "10.96.1.5" }),
      slice("refused", "IPv4", "10.180.0.5"),
    ],
    failures: [{ subject: "n/refused:a", reason: "no space" }],
    tracking: { entries: 10, max: 100 },
  });
  const { squares, wrong, tracked, ...counts } = await json<FrontAnswer>(`${url}api/front`);
  assert.deepEqual(counts, { total: 5, silent: 2, partly: 2, wrongPorts: 5, pauseMs: counts.pauseMs });
  assert.deepEqual(
    squares.map(([name, , grade]) => `${name} ${grade}`),
    [...["n/empty 2", "n/refused 2", "n/away 1", "n/dual 1", "n/well 0"]],
  );
  assert.deepEqual(
    wrong.map(({ name, isSilent, why }) => [name, isSilent, why]),
    [
      ["n/empty:a", true, "The service port has no endpoints: its clients are refused."],
      ["n/empty:b", true, "The service port has no endpoints: its clients are refused."],
      ["n/refused:a", true, "Refused by the kernel: no space"],
      [
        "n/away:a",
        false,
        "externalTrafficPolicy is Local: from outside, only this node's endpoints answer (none usable).",
      ],
      ["n/dual:a", false, "IPv6: The service port has no endpoints: its clients are refused."],
    ],
  );
  assert.deepEqual(
    tracked.map(([, entries]) => entries),
    [10],
  );
  const none = await servedPage(t, { items: [] });
  const { total, tracked: unknown } = await json<FrontAnswer>(`${none.url}api/front`);
  assert.deepEqual([total, unknown], [0, []]);
});

test("the state has repairs, refusals and connection tracking, and an unchanged one still says when the API server was heard", async (t) => {
  const { url, journal } = await page(t, { tracking: { entries: 95, max: 100 }, silentMs: 1234 });
  journal.add(syncRecord({ endedMs: Date.now(), causes: [{ kind: "repair", servicePorts: 1, by: null }] }));
  const first = await answerTo(`${url}api/state`);
  const { status, lately } = JSON.parse(first.text) as StateAnswer;
  assert.deepEqual([lately.repairs, lately.refusals], [1, 0]);
  assert.match(String(status.connectionTracking?.notes[0]), /95 % full/);
  const again = await answerTo(`${url}api/state`, { "If-None-Match": String(first.headers.etag) });
  assert.deepEqual([again.status, again.headers["x-api-server-silent-ms"]], [304, "1234"]);
});

test("the overview's reasons come with the names in them", async (t) => {
  const service = (name: string, created: string) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "n", name, creationTimestamp: created } },
    spec: { clusterIP: `10.96.0.${name.length}`, externalIPs: ["192.0.2.1"], ports: [{ port: 80 }] },
  });
  const { url } = await page(t, {
    items: [service("a", "2026-01-01T00:00:00Z"), service("bb", "2026-01-02T00:00:00Z")],
  });
  const { wrong } = await json<FrontAnswer>(`${url}api/front`);
  assert.deepEqual(
    wrong.map(({ name, names }) => [name, names]),
    [
      ["n/a", []],
      ["n/bb", [["n/a", "service"]]],
    ],
  );
  assert.match(wrong[1]?.why ?? "", /^192\.0\.2\.1 80 belongs to n\/a, which answers there\./);
});
