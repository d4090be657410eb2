/**
 * Invalid objects, added to a running cluster one by one: each is named in the log, none reaches a rule, and the
 * service beside it stays as it is and keeps being updated.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { stretched } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import {
  faultNode,
  isServed,
  isServedAsMade,
  served,
  service,
  slice,
  startDaemon,
  writeManifest,
} from "./fault-node.ts";

describe("objects that are wrong", { skip: kernelSkip, timeout: stretched(120_000) }, () => {
  const cleanups: (() => unknown)[] = [];
  let daemon: ProxyDaemon;
  let edits = 0;

  before(async () => {
    const scope = { after: (cleanup: () => unknown) => void cleanups.unshift(cleanup) } as Parameters<
      typeof faultNode
    >[0];
    daemon = await startDaemon(scope, await faultNode(scope), { objects: served("good", 1) });
  });
  after(async () => {
    for (const cleanup of cleanups) await cleanup();
  });

  /**
   * Writes the file, also changes the good service, and waits until that is in the kernel and the log says what it must.
   *
   * @returns rules, log.
   */
  async function meet(name: string, content: unknown, ...says: RegExp[]): Promise<{ rules: string; log: string }> {
    const logBefore = daemon.log.length;
    edits += 1;
    const canary = `10.180.9.${edits}`;
    writeManifest(daemon, name, content);
    for (const pattern of says) await daemon.until(`${pattern}`, () => pattern.test(daemon.log.slice(logBefore)));
    writeManifest(daemon, "zz-canary.json", {
      kind: "List",
      apiVersion: "v1",
      items: [service("canary", "10.96.9.9"), slice("canary", [canary])],
    });
    let rules = "";
    await daemon.until(`the canary's endpoint ${canary}`, async () => {
      rules = await daemon.saved("iptables-save");
      return isServed(rules, "10.96.9.9", [canary]);
    });
    assert.ok(isServedAsMade(rules, 1), "the good service is as it was");
    const health = await daemon.fetch("http://127.0.0.1:10256/healthz");
    assert.equal(health.status, 200, health.body);
    return { rules, log: daemon.log.slice(logBefore) };
  }

  test("malformed YAML is reported with its file and line, and the rest of the file is read", async () => {
    const broken = ["apiVersion: v1", "kind: Service", "metadata: { name: broken, namespace: ns"];
    const text = [...broken, "---", JSON.stringify(service("beside", "10.96.1.2")), ""].join("\n");
    const { rules } = await meet(
      "malformed.yaml",
      text,
      /err="cannot be parsed: .*malformed\.yaml" document=1 line=4 object="Service ns\/broken"/,
    );
    assert.match(rules, /-d 10\.96\.1\.2\/32 .*"ns\/beside:http has no endpoints"/);
  });

  test("a file that breaks keeps the last good version of its objects in force", async () => {
    await meet("breaks.json", { kind: "List", apiVersion: "v1", items: served("breaks", 3) });
    const { rules } = await meet("breaks.json", '{"kind": "List", "items": [{', /breaks\.json/);
    assert.ok(isServedAsMade(rules, 3), rules);
  });

  test("kinds that are not ours are passed over", async () => {
    const objects = [
      { apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "x" } },
      { apiVersion: "v2", kind: "Service", metadata: { name: "from-the-future" }, spec: {} },
      { kind: "Servce", metadata: { name: "typo" } },
      { hello: "world" },
      "text",
      null,
      42,
      [],
      ...served("among-them", 4),
    ];
    const { rules, log } = await meet("kinds.yaml", objects.map((one) => JSON.stringify(one)).join("\n---\n"));
    assert.match(log, /"Manifest objects of other kinds ignored".*objects=\["Deployment default\/x"\]/);
    // Ours in a version that is not read, and what is no object; an array is a list, here of nothing.
    for (const document of [2, 3, 4, 5, 7]) assert.match(log, new RegExp(`kinds\\.yaml" document=${document} `));
    assert.ok(isServedAsMade(rules, 4), rules);
  });

  const smuggled = [
    "a b",
    'a"b',
    "a'b",
    "a\\b",
    "a\n-A INPUT -j DROP",
    "a\nCOMMIT\n*filter",
    "-j ACCEPT",
    "--dport",
    "a;reboot",
    "$(reboot)",
    "a\u0000b",
    "a\u2028b",
    "a".repeat(254),
  ];

  test("names that smuggle anything into a rule are refused, wherever they stand", async () => {
    const objects = smuggled.flatMap((text, index) => {
      const ip = `10.96.2.${index + 1}`;
      const ports = [{ name: text, port: 80, protocol: "TCP" }];
      return [
        { ...service(text, ip), metadata: { name: text, namespace: "ns" } },
        { ...service(text, ip), metadata: { name: `in-${index}`, namespace: text } },
        service(`port-${index}`, ip, { ports }),
        service(`protocol-${index}`, ip, { ports: [{ name: "http", port: 80, protocol: text }] }),
        slice("good", ["10.180.66.1"], {
          metadata: { name: text, namespace: "ns", labels: { "kubernetes.io/service-name": "good" } },
        }),
        slice("good", ["10.180.66.2"], {
          metadata: { name: `label-${index}`, namespace: "ns", labels: { "kubernetes.io/service-name": text } },
        }),
        slice("good", ["10.180.66.3"], {
          metadata: { name: `port-${index}`, namespace: "ns", labels: { "kubernetes.io/service-name": "good" } },
          ports,
        }),
      ];
    });
    const { rules } = await meet(
      "smuggle.json",
      { kind: "List", apiVersion: "v1", items: objects },
      /err="items\[0\]\.metadata\.name must be a DNS label: .*, got \\"a b\\""/,
      /"More problems in the same manifest file"/,
    );
    assert.doesNotMatch(rules, /10\.96\.2\.|10\.180\.66\./);
    for (const chain of ["INPUT", "OUTPUT", "FORWARD"])
      assert.doesNotMatch(rules, new RegExp(`-A ${chain} -j (?!KUBE-)`));
  });

  test("addresses that smuggle anything into a rule are left out", async () => {
    const addresses = smuggled.flatMap((text) => [text, `10.96.3.9 ${text}`, `10.96.3.9\n${text}`, `10.96.3.9/32`]);
    const objects = [
      ...addresses.map((text, index) => service(`ip-${index}`, text)),
      service("outside", "10.96.3.1", {
        type: "LoadBalancer",
        externalIPs: [...addresses, "198.51.100.3"],
        loadBalancerSourceRanges: addresses,
      }),
      {
        ...service("ingress", "10.96.3.2", { type: "LoadBalancer" }),
        status: { loadBalancer: { ingress: addresses.map((ip) => ({ ip })) } },
      },
      service("ranges", "10.96.3.3", { type: "LoadBalancer" }),
      slice("outside", ["10.180.3.1"]),
      slice(
        "ingress",
        addresses.map((text) => text),
      ),
    ];
    const { rules } = await meet(
      "addresses.json",
      { kind: "List", apiVersion: "v1", items: objects },
      /err="items\[1\]\.spec\.clusterIP must be an IP address, or absent, got \\"10\.96\.3\.9 a b\\""/,
    );
    assert.doesNotMatch(rules, /10\.96\.3\.9/);
    assert.match(rules, /-d 198\.51\.100\.3\/32 /);
    assert.match(rules, /"ns\/ingress:http has no endpoints"/);
  });

  test("ports 0 and 65536 are refused with the field and what is allowed", async () => {
    const bad = [0, 65536, -1, 80.5, "80", null];
    const objects = bad.flatMap((port, index) => [
      service(`port-${index}`, `10.96.4.${index + 1}`, { ports: [{ name: "http", port }] }),
      service(`node-port-${index}`, `10.96.5.${index + 1}`, {
        type: "NodePort",
        ports: [{ name: "http", port: 80, nodePort: port }],
      }),
      service(`backend-${index}`, `10.96.6.${index + 1}`),
      slice(`backend-${index}`, ["10.180.4.1"], { ports: [{ name: "http", port }] }),
    ]);
    const { rules, log } = await meet("ports.json", { kind: "List", apiVersion: "v1", items: objects });
    for (const got of ["0", "65536"]) {
      assert.match(log, new RegExp(`spec\\.ports\\[0\\]\\.port must be a whole number from 1 to 65535, got ${got}"`));
    }
    assert.match(log, /spec\.ports\[0\]\.nodePort must be a whole number from 1 to 65535, or absent, got 65536"/);
    assert.doesNotMatch(rules, /10\.96\.4\.|10\.180\.4\.1/);
    assert.match(rules, /"ns\/backend-0:http has no endpoints"/);
  });

  test("addresses of the other family are left out", async () => {
    const objects = [
      service("v6-in-v4", "10.96.7.1", { type: "LoadBalancer", externalIPs: ["fd00::7", "198.51.100.7"] }),
      slice("v6-in-v4", ["fd00:180::7", "10.180.7.1"]),
      service("contradiction", "fd00:96::7", { ipFamilies: ["IPv4"] }),
      service("mapped", "::ffff:10.96.7.3"),
      slice("mapped", ["::ffff:10.180.7.3"]),
    ];
    const { rules, log } = await meet("families.json", { kind: "List", apiVersion: "v1", items: objects });
    assert.ok(isServed(rules, "10.96.7.1", ["10.180.7.1"]), log);
    assert.match(rules, /-d 198\.51\.100\.7\/32 /);
    assert.doesNotMatch(rules, /fd00|::/);
    assert.match(log, /object="Service ns\/contradiction" field=".*ipFamilies/);
    const rules6 = await daemon.saved("ip6tables-save");
    assert.doesNotMatch(rules6, /\d+\.\d+\.\d+\.\d+/);
  });

  test("of two services with one cluster IP or node port the first by name answers, and the log says so", async () => {
    const nodePort = { type: "NodePort", ports: [{ name: "http", port: 80, nodePort: 30080 }] };
    const objects = [
      service("twin-b", "10.96.8.1", nodePort),
      slice("twin-b", ["10.180.8.2"]),
      service("twin-a", "10.96.8.1", nodePort),
      slice("twin-a", ["10.180.8.1"]),
    ];
    const { rules, log } = await meet("twins.json", { kind: "List", apiVersion: "v1", items: objects });
    const loss = 'field="spec.clusterIPs" frontend="tcp 10.96.8.1:80" owner="ns/twin-a:http"';
    assert.ok(log.includes(`servicePort="ns/twin-b:http" ${loss} ownerField="spec.clusterIPs" moreOfThisPair=1`), log);
    const winner = (pattern: RegExp) => /ns\/twin-.:http/.exec(pattern.exec(rules)?.[0] ?? "")?.[0];
    assert.equal(winner(/-A KUBE-SERVICES -d 10\.96\.8\.1\/32 .*/), "ns/twin-a:http");
    assert.equal(winner(/-A KUBE-NODEPORTS .*--dport 30080 .*/), "ns/twin-a:http");
    assert.doesNotMatch(rules, /-A KUBE-(SERVICES|NODEPORTS) .*ns\/twin-b:http/);
    const after = await meet("twins.json", { kind: "List", apiVersion: "v1", items: objects.slice(0, 2) });
    assert.ok(isServed(after.rules, "10.96.8.1", ["10.180.8.2"]), after.rules);
  });

  test("an external IP does not take another service's cluster IP, and the log tells whose it is", async () => {
    const victim = service("zz-victim", "10.96.8.3", {});
    const taker = service("aa-taker", "10.96.8.4", { externalIPs: ["10.96.8.3"] });
    const items = [victim, slice("zz-victim", ["10.180.8.3"]), taker, slice("aa-taker", ["10.180.8.4"])];
    const { rules, log } = await meet("taker.json", { kind: "List", apiVersion: "v1", items });
    assert.ok(isServed(rules, "10.96.8.3", ["10.180.8.3"]), rules);
    assert.doesNotMatch(rules, /ns\/aa-taker:?\S* external IP/);
    assert.match(
      log,
      /servicePort="ns\/aa-taker\S*" field="spec.externalIPs" frontend="tcp 10.96.8.3:80" owner="ns\/zz-victim/,
    );
  });

  test("a cluster IP of the node's own loopback is refused by name; its last good version stays", async () => {
    const at = (address: string) => ({
      kind: "List",
      apiVersion: "v1",
      items: [service("own", address, {}), slice("own", ["10.180.8.9"])],
    });
    await meet("own.json", at("10.96.8.9"));
    const { rules } = await meet(
      "own.json",
      at("127.0.0.1"),
      /spec\.clusterIP must be an address of a Service CIDR, not a special one \(loopback\)/,
    );
    assert.ok(isServed(rules, "10.96.8.9", ["10.180.8.9"]), rules);
    assert.doesNotMatch(rules, /-A KUBE-SERVICES -d 127\.0\.0\.1/);
  });

  test("a slice without a service makes no rules, and those of its service once that comes", async () => {
    const { rules } = await meet("orphan.json", slice("orphan", ["10.180.20.1"]));
    assert.doesNotMatch(rules, /orphan|10\.180\.20\.1/);
    const after = await meet("orphan-service.json", service("orphan", "10.96.20.1"));
    assert.ok(isServed(after.rules, "10.96.20.1", ["10.180.20.1"]), after.rules);
  });

  test("a service with 2,000 endpoints is served by each of them with equal chances", async () => {
    const addresses = Array.from({ length: 2000 }, (_, index) => `10.180.${100 + (index >> 8)}.${index & 255}`);
    const slices = [0, 1].map((half) =>
      slice("crowd", addresses.slice(half * 1000, half * 1000 + 1000), {
        metadata: { name: `crowd-${half}`, namespace: "ns", labels: { "kubernetes.io/service-name": "crowd" } },
      }),
    );
    const items = [service("crowd", "10.96.21.1"), ...slices];
    let { rules } = await meet("crowd.json", { kind: "List", apiVersion: "v1", items });
    // The canary's rules may come first: with the nft back end a sync is many transactions.
    await daemon.until("the crowd's endpoints", async () => {
      if (isServed(rules, "10.96.21.1", addresses)) return true;
      rules = await daemon.saved("iptables-save");
      return isServed(rules, "10.96.21.1", addresses);
    });
    const chain = /-d 10\.96\.21\.1\/32 .* -j (KUBE-SVC-\S+)/.exec(rules)?.[1];
    const probabilities = [...rules.matchAll(new RegExp(`^-A ${chain} .*--probability (\\S+)`, "gm"))];
    let left = 1;
    for (const [index, [, text]] of probabilities.entries()) {
      const share = left * Number(text);
      // The kernel keeps 31 bits of a probability.
      assert.ok(Math.abs(share - 1 / 2000) < 1e-6, `endpoint ${index} gets ${share}`);
      left -= share;
    }
    assert.equal(probabilities.length, 1999);
  });
});
