/** Another program changes the nftables mode's table: its change is undone at once, with little work, logged and counted. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { signalChild } from "../../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { traitsOf } from "../flows/modes.ts";
import { faultNode, nodeObject, prepareDaemon, served, service, slice, startDaemon } from "./fault-node.ts";
import { NftMonitor } from "./nft-monitor.ts";

const REPAIRS = 'kubeproxy_sync_proxy_rules_repairs_total{ip_family="IPv4"}';
const WARNING = "Another program changed our nftables rules; repairing them";

const objects = [
  ...[1, 2, 3].flatMap((number) => served(`plain-${number}`, number)),
  service("none", "10.96.0.20"),
  service("sticky", "10.96.0.21", { sessionAffinity: "ClientIP" }),
  slice("sticky", ["10.180.0.21"]),
  {
    ...service("everywhere", "10.96.0.22", {
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30022 }],
      loadBalancerSourceRanges: ["203.0.113.0/24"],
      externalIPs: ["198.51.100.22"],
    }),
    status: { loadBalancer: { ingress: [{ ip: "192.0.2.22" }] } },
  },
  slice("everywhere", ["10.180.0.22", "10.180.1.22"]),
];

/** Names of a service's chains begin with the kind and end with the owner; the hash is in between. */
function chainOf(listed: string, what: string, name: string): string {
  return (
    new RegExp(`(${what}-[A-Z2-7]{8}-ns/${name}/tcp/http[^\\s,]*)`).exec(listed)?.[1] ?? assert.fail(`${what} ${name}`)
  );
}

interface Damage {
  readonly name: string;
  /** The input for nft, given nft's listing of the table. */
  readonly commands: (listed: string) => readonly string[];
  /** What the log must name. */
  readonly lost: RegExp;
  /** Maximum number of objects that the repair may touch; a replaced rule counts twice. */
  readonly touched: number;
  /** Number of transactions for the repair. @default 1 */
  readonly batches?: number;
}

const AT = "ip kube-proxy";

const DAMAGES: readonly Damage[] = [
  {
    name: "a rule of a service is deleted",
    commands: (listed) => [`flush chain ${AT} ${chainOf(listed, "service", "plain-2")}`],
    lost: /chains="service-\S+-ns\/plain-2\/tcp\/http"/,
    touched: 5,
  },
  {
    name: "a rule of another program's is put into a chain of ours",
    commands: (listed) => [`insert rule ${AT} ${chainOf(listed, "external", "everywhere")} drop`],
    lost: /chains="external-\S+-ns\/everywhere\/tcp\/http"/,
    touched: 11,
  },
  {
    name: "a chain of a service is deleted with the elements that lead to it",
    commands: (listed) => {
      const chain = chainOf(listed, "service", "plain-1");
      return [`delete element ${AT} service-ips { 10.96.0.1 . tcp . 80 }`, `delete chain ${AT} ${chain}`];
    },
    lost: /chains="service-\S+-ns\/plain-1\/tcp\/http" sets="service-ips"/,
    touched: 6,
  },
  {
    name: "an element of a map is deleted",
    commands: () => [`delete element ${AT} service-ips { 10.96.0.3 . tcp . 80 }`],
    lost: /sets="service-ips"/,
    touched: 1,
  },
  {
    name: "an element of a map is changed",
    commands: () => [
      `delete element ${AT} no-endpoint-services { 10.96.0.20 . tcp . 80 }`,
      `add element ${AT} no-endpoint-services { 10.96.0.20 . tcp . 80 : drop }`,
    ],
    lost: /sets="no-endpoint-services"/,
    touched: 2,
  },
  {
    name: "an element is added to a set",
    commands: () => [`add element ${AT} cluster-ips { 10.96.9.9 }`],
    lost: /sets="cluster-ips"/,
    touched: 1,
  },
  {
    name: "a map is emptied",
    commands: () => [`flush map ${AT} firewall-ips`, `flush map ${AT} service-nodeports`],
    lost: /sets="(firewall-ips, service-nodeports|service-nodeports, firewall-ips)"/,
    touched: 2,
  },
  {
    name: "a base chain is deleted",
    commands: () => [`delete chain ${AT} nat-output`],
    lost: /chains="nat-output"/,
    touched: 2,
  },
  {
    name: "rules of a fixed chain are deleted",
    commands: () => [`flush chain ${AT} services`],
    lost: /chains="services"/,
    touched: 3,
  },
  {
    name: "a set is deleted with the rules that use it",
    commands: () => [`flush chain ${AT} masquerading`, `delete set ${AT} hairpin-connections`],
    lost: /sets="hairpin-connections"/,
    touched: 4,
  },
  {
    name: "the affinity of an endpoint is deleted with the rules that use it",
    commands: (listed) => [
      `flush chain ${AT} ${chainOf(listed, "service", "sticky")}`,
      `flush chain ${AT} ${chainOf(listed, "endpoint", "sticky")}`,
      `delete set ${AT} ${chainOf(listed, "affinity", "sticky")}`,
    ],
    lost: /sets="affinity-\S+-ns\/sticky\/tcp\/http__10\.180\.0\.21\/8080"/,
    touched: 8,
  },
  {
    name: "a base chain is made to drop what its rules leave",
    commands: () => [`chain ${AT} filter-forward { policy drop; }`],
    lost: /chains="filter-forward"/,
    touched: 1,
  },
  {
    name: "the table is switched off",
    commands: () => [`add table ${AT} { flags dormant; }`],
    lost: /wholeTable=true/,
    touched: 1,
  },
  {
    name: "the table is made again, switched off, with a base chain that drops",
    commands: () => [
      `delete table ${AT}`,
      `add table ${AT} { flags dormant; }`,
      `add chain ${AT} filter-forward { type filter hook forward priority 0; policy drop; }`,
    ],
    lost: /wholeTable=true/,
    touched: Number.POSITIVE_INFINITY,
    batches: 2,
  },
  ...[
    "type nat hook output priority -90",
    "type filter hook output priority -100",
    "type nat hook input priority 100",
  ].map(
    (kind): Damage => ({
      name: `a base chain becomes one of ${kind}`,
      commands: () => [`delete chain ${AT} nat-output`, `add chain ${AT} nat-output { ${kind}; }`],
      lost: /chains="nat-output"/,
      touched: Number.POSITIVE_INFINITY,
    }),
  ),
  {
    name: "a base chain becomes a regular one",
    commands: () => [`delete chain ${AT} nat-postrouting`, `add chain ${AT} nat-postrouting`],
    lost: /chains="nat-postrouting"/,
    touched: Number.POSITIVE_INFINITY,
  },
  {
    name: "a fixed chain becomes a base chain that drops",
    commands: () => [
      `flush chain ${AT} nat-postrouting`,
      `flush chain ${AT} masquerading`,
      `delete chain ${AT} masquerading`,
      `add chain ${AT} masquerading { type filter hook forward priority 5; policy drop; }`,
    ],
    lost: /chains="(nat-postrouting, masquerading|masquerading, nat-postrouting)"/,
    touched: Number.POSITIVE_INFINITY,
  },
  {
    name: "a chain of a service becomes a base chain that drops",
    commands: (listed) => {
      const chain = chainOf(listed, "service", "plain-1");
      return [
        `delete element ${AT} service-ips { 10.96.0.1 . tcp . 80 }`,
        `flush chain ${AT} ${chain}`,
        `delete chain ${AT} ${chain}`,
        `add chain ${AT} ${chain} { type filter hook forward priority 5; policy drop; }`,
      ];
    },
    lost: /chains="service-\S+-ns\/plain-1\/tcp\/http"/,
    touched: Number.POSITIVE_INFINITY,
  },
  {
    name: "an element that catches everything is added to a map",
    commands: () => [`add element ${AT} no-endpoint-services { * : drop }`],
    lost: /sets="no-endpoint-services"/,
    touched: 1,
  },
  ...["size 2;", "timeout 1h;", "flags timeout;", "policy memory;", "counter;"].map(
    (more): Damage => ({
      name: `a set is made again, with ${more}`,
      commands: () => [
        `flush chain ${AT} services; flush chain ${AT} cluster-ips-check`,
        `delete set ${AT} cluster-ips`,
        `add set ${AT} cluster-ips { type ipv4_addr; ${more} }`,
      ],
      lost: /sets="cluster-ips"/,
      touched: Number.POSITIVE_INFINITY,
    }),
  ),
  {
    name: "a map is made again, of other keys",
    commands: () => [
      `flush chain ${AT} firewall-check; delete map ${AT} firewall-ips`,
      `add map ${AT} firewall-ips { type ipv4_addr : verdict; }`,
    ],
    lost: /sets="firewall-ips"/,
    touched: Number.POSITIVE_INFINITY,
  },
  {
    name: "the affinity of an endpoint is made again as a set of another kind",
    commands: (listed) => [
      `flush chain ${AT} ${chainOf(listed, "service", "sticky")}`,
      `flush chain ${AT} ${chainOf(listed, "endpoint", "sticky")}`,
      `delete set ${AT} ${chainOf(listed, "affinity", "sticky")}`,
      `add set ${AT} ${chainOf(listed, "affinity", "sticky")} { type ipv4_addr; }`,
    ],
    lost: /sets="affinity-\S+-ns\/sticky\/tcp\/http__10\.180\.0\.21\/8080"/,
    touched: Number.POSITIVE_INFINITY,
  },
  {
    name: "the table is deleted",
    commands: () => [`delete table ${AT}`],
    lost: /wholeTable=true/,
    touched: Number.POSITIVE_INFINITY,
  },
];

async function startNftables(t: TestContext, node: NetworkNamespace): Promise<ProxyDaemon> {
  return await startDaemon(t, node, {
    objects: [nodeObject, ...objects],
    config: { mode: "nftables", nftables: { syncPeriod: "1s" } },
  });
}

describe("nftables mode: other programs on the node", { skip: kernelSkip, timeout: stretched(120_000) }, () => {
  test("what others do to the table is undone, named and counted", async (t) => {
    const node = await faultNode(t);
    const daemon = await startNftables(t, node);
    const rules = () => traitsOf.nftables.rules(daemon);
    const expected = await rules();
    const monitor = await NftMonitor.start(node);
    t.after(() => monitor.stop());
    for (const { name, commands, lost, touched, batches = 1 } of DAMAGES) {
      await t.test(name, async () => {
        const { stdout: listed } = await node.exec(["nft", "list", "table", "ip", "kube-proxy"]);
        const repairs = (await daemon.metric(REPAIRS)) ?? 0;
        const logged = daemon.log.length;
        const seen = monitor.commits.length;
        await node.exec(["nft", commands(listed).join("; ")]);
        await daemon.until("the repair", async () => (await rules()) === expected);
        await daemon.until("the count", async () => ((await daemon.metric(REPAIRS)) ?? 0) > repairs);
        const warning = daemon.log.slice(logged);
        assert.match(warning, new RegExp(WARNING));
        assert.match(warning, lost);
        assert.match(warning, /process="nft"/);
        await daemon.until("its announcement", () => monitor.commits.length >= seen + 1 + batches);
        const [theirs, ...ours] = monitor.commits.slice(seen);
        assert.match(theirs?.by ?? "", /nft/);
        assert.equal(ours.length, batches, `${batches} batches repair it: ${JSON.stringify(ours)}`);
        const objectsTouched = ours.flatMap(({ changes }) => changes);
        assert.ok(objectsTouched.length <= touched, `${touched} changes expected:\n${objectsTouched.join("\n")}`);
      });
    }
  });

  test("a second daemon that writes other rules is named once, and does not fill the log", async (t) => {
    const node = await faultNode(t);
    const daemon = await startNftables(t, node);
    const config = { mode: "nftables", healthzBindAddress: "127.0.0.1:10356", metricsBindAddress: "127.0.0.1:10349" };
    const other = prepareDaemon(t, node, { objects: served("other", 9), config });
    const logged = daemon.log.length;
    other.spawn();
    await daemon.until("many repairs", async () => ((await daemon.metric(REPAIRS)) ?? 0) > 50);
    const lines = daemon.log.slice(logged).split("\n");
    const named = lines.filter((line) => line.includes("Another kube-proxy seems") && line.includes("IPv4"));
    assert.equal(named.length, 1, daemon.log);
    assert.match(named[0] ?? "", new RegExp(`pid=${other.pid}\\b`));
    const warnings = lines.filter((line) => line.includes(WARNING));
    assert.ok(warnings.length < 10, `${warnings.length} warnings: ${warnings.join("\n")}`);
  });

  test("a foreign chain that jumps into ours holds that chain, and nothing else", async (t) => {
    const node = await faultNode(t);
    const daemon = await startNftables(t, node);
    const list = async () => (await node.exec(["nft", "list", "table", "ip", "kube-proxy"])).stdout;
    const chain = chainOf(await list(), "service", "plain-1");
    await node.exec(["nft", `add chain ${AT} theirs; add rule ${AT} theirs jump ${chain}`]);
    const left = objects.slice(2);
    daemon.writeObjects([nodeObject, ...left, ...served("late", 4)]);
    await daemon.until("the change", async () => (await list()).includes("ns/late/tcp"));
    const held = await list();
    assert.match(held, new RegExp(`chain ${chain} \\{\\s*\\}`), "its rules and elements are gone");
    assert.doesNotMatch(held, /10\.96\.0\.1 /);
    await daemon.logged(new RegExp(`"Still in use, to be deleted by a later sync" .*chain ${chain}.*EBUSY`));
    assert.equal((await daemon.fetch("http://127.0.0.1:10256/healthz")).status, 200);
    await node.exec(["nft", `delete chain ${AT} theirs`]);
    // With the next sync of any kind, once a second has passed since it was put off.
    for (let number = 5; (await list()).includes(chain); number += 1) {
      assert.ok(number < 100, "the chain is still there");
      daemon.writeObjects([nodeObject, ...left, ...served("late", number)]);
      await daemon.until("the sync", async () => (await list()).includes(`10.96.0.${number} `));
    }
  });

  test("a table that belongs to another process is named as failing, and made again when that ends", async (t) => {
    const node = await faultNode(t);
    const daemon = await startNftables(t, node);
    const rules = () => traitsOf.nftables.rules(daemon);
    const expected = await rules();
    const owner = node.spawn(["nft", "-i"], { stdio: ["pipe", "ignore", "ignore"] });
    t.after(() => signalChild(owner));
    owner.stdin?.write(`delete table ${AT}; add table ${AT} { flags owner; }\n`);
    await daemon.until("the failure in /healthz", async () => {
      const { body } = await daemon.fetch("http://127.0.0.1:10256/healthz");
      const { failures = [] } = JSON.parse(body) as { readonly failures?: readonly { readonly reason: string }[] };
      return failures.some(({ reason }) => reason.includes("table ip kube-proxy belongs to another process"));
    });
    owner.stdin?.end();
    await daemon.until("the repair", async () => (await rules()) === expected);
    await daemon.until("health", async () => {
      const { status, body } = await daemon.fetch("http://127.0.0.1:10256/healthz");
      return status === 200 && !body.includes("failures");
    });
  });

  test("without CAP_NET_ADMIN it does not start, and says what it needs", async (t) => {
    const node = await faultNode(t);
    const wrapper = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"] as const;
    const daemon = prepareDaemon(t, node, { objects, config: { mode: "nftables" }, wrapper });
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(daemon.log, /unable to create ipv4 proxier: .*not permit.*EPERM.*run as root or with CAP_NET_ADMIN/);
  });

  test("another program commits all the time: the daemon starts over its table, and keeps up with changes", async (t) => {
    const node = await faultNode(t);
    const daemon = await startNftables(t, node);
    const expected = await traitsOf.nftables.rules(daemon);
    await daemon.stop();
    await node.exec(["nft", "add table ip theirs; add chain ip theirs c"]);
    const busy = node.spawn(["sh", "-c", "while nft flush chain ip theirs c; do :; done"], { stdio: "ignore" });
    t.after(() => signalChild(busy));
    daemon.spawn();
    const startMs = Date.now();
    await daemon.synced(startMs);
    for (const number of [4, 5, 6]) {
      daemon.writeObjects([nodeObject, ...objects, ...served("late", number)]);
      await daemon.until("the change", async () => {
        const { stdout } = await node.exec(["nft", "list", "map", "ip", "kube-proxy", "service-ips"]);
        return stdout.includes(`10.96.0.${number} `);
      });
    }
    daemon.writeObjects([nodeObject, ...objects]);
    await daemon.until("the end of the late one", async () => {
      const rules = (await traitsOf.nftables.rules(daemon)).split("\n").filter((line) => !line.includes('"theirs"'));
      return rules.join("\n") === expected;
    });
    assert.doesNotMatch(daemon.log, /Sync failed/);
  });
});
