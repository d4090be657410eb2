/**
 * What a history of changes leaves in the kernel does with all packets what Services mean: after each difference, not only at the
 * end, and not only as one sync from nothing does. `KPTS_PROVE_HISTORIES` sets how many histories are tried of each kind.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import { ip } from "../../src/model/testing/records.ts";
import { LAYOUT_NAMES } from "../../src/modes/nftables/layout-name.ts";
import { CONFIGS } from "../../src/modes/nftables/testing/backend-rig.ts";
import { IP_FAMILIES, type IpAddress, type IpFamily } from "../../src/net/ip.ts";
import { dumpReaders } from "../../src/tools/cli/trace-rules.ts";
import type { Proof, Side } from "../../src/tools/prove/proof.ts";
import { rulesSide } from "../../src/tools/prove/sides.ts";
import { specification } from "../../src/tools/prove/specification.ts";
import type { SpecifiedNode } from "../../src/tools/prove/stated-services.ts";
import { type Dump, recogniseDump } from "../../src/trace/dump/recognise.ts";
import { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { prove } from "../../testkit/support/prove.ts";
import { NODE_NAME, type Step, stepArbitrary } from "./cluster-arbitrary.ts";
import { ClusterHistory, configOf, type HistoryOptions } from "./cluster-history.ts";
import { IpvsHistory } from "./ipvs-history.ts";
import { NftablesHistory } from "./nftables-history.ts";
import type { ObjectHistory } from "./object-history.ts";
import { differencesIn, VARIANTS } from "./prove-support.ts";

/** Of each kind; a history has some 13 states. In `test:all`, 10,000 states in all. */
const RUNS = historyRuns("KPTS_PROVE_HISTORIES", 8);
/** Of so many states, and of more until one is found, it is also seen that what was in the kernel before the sync is something else. */
const UNSYNCED_STATES = 30;

/** A backend on a kernel in memory, and what it is to do. */
interface LiveNode {
  readonly objects: ObjectHistory;
  apply(step: Exclude<Step, { kind: "sync" }>): void;
  sync(isFull: boolean): Promise<{ readonly failures: readonly unknown[] }>;
  /** What the kernel has now. */
  dumps(): Promise<readonly Dump[]>;
  /** What is known of the node now. */
  facts(): Promise<
    Omit<SpecifiedNode, "family" | "name" | "ownSockets" | "namesLoopback" | "services" | "endpointSlices">
  >;
}

const LOOPBACK = { IPv4: ip("127.0.0.1"), IPv6: ip("::1") } as const;
const readers = await dumpReaders();

async function meaningOf(variant: string, node: LiveNode, family: IpFamily, settings: object): Promise<Side> {
  const found = VARIANTS.find(({ name }) => name === variant);
  assert.ok(found);
  const { config } = await checkedSettings({ config: settings, mode: found.mode, node: NODE_NAME });
  const { services, slices } = node.objects;
  const objects = { services: [...services.byKey.values()], endpointSlices: [...slices.byKey.values()] };
  const specified = {
    family,
    name: NODE_NAME,
    ownSockets: [],
    namesLoopback: false,
    ...objects,
    ...(await node.facts()),
  };
  return { name: "specification", ...specification(specified, new Set(found.deviations(config))) };
}

async function proved(variant: string, node: LiveNode, family: IpFamily, settings: object): Promise<Proof> {
  const { addresses } = await node.facts();
  const rules = rulesSide("kernel", await node.dumps(), family, addresses);
  return prove(family, addresses, [await meaningOf(variant, node, family, settings), rules]);
}

function nftablesNode(layout: (typeof LAYOUT_NAMES)[number], family: IpFamily): LiveNode {
  const history = new NftablesHistory(family, { layout });
  const { nodeIP, detector } = CONFIGS[family];
  const { rig } = history;
  const other = ip(family === "IPv4" ? "10.200.0.2" : "fd00:200::2");
  return {
    objects: history.objects,
    apply: (step) => history.apply(step),
    sync: (isFull) => history.sync(isFull),
    dumps: async () => [{ kind: "nftables", objects: rig.list() }],
    facts: async () => ({
      ...{
        nodeIP,
        detector,
        zone: rig.driver.zone,
        serviceCIDRs: rig.driver.serviceCIDRs,
        masqueradesAll: false,
        hashSeed: 1,
      },
      addresses: [...new Set([nodeIP, other, LOOPBACK[family]])],
      nodePortAddresses: rig.node.nodePortIPs?.kind === "ips" ? rig.node.nodePortIPs.ips : undefined,
    }),
  };
}

function iptablesNode(options: HistoryOptions): LiveNode {
  const { family } = options;
  const kernel = new MemoryIptables(family);
  const history = new ClusterHistory(options, kernel);
  const { nodeIP, detector, masqueradeAll } = configOf(options);
  return {
    objects: history.objects,
    apply: (step) => history.apply(step),
    // Addresses are looked at in full syncs only.
    sync: (isFull) => history.sync(isFull),
    dumps: async () => [{ kind: "iptables", family, text: kernel.dump("filter") + kernel.dump("nat") }],
    facts: async () => ({
      ...{ nodeIP, detector, zone: history.zone, serviceCIDRs: [], masqueradesAll: masqueradeAll, hashSeed: 1 },
      addresses: [nodeIP, LOOPBACK[family]],
      nodePortAddresses: history.nodePortIPs.kind === "ips" ? history.nodePortIPs.ips : undefined,
    }),
  };
}

const SERVER_OPTIONS: Readonly<Record<string, string>> = { TCP: "-t", UDP: "-u", SCTP: "--sctp-service" };

function ipvsNode(family: IpFamily): LiveNode {
  const history = new IpvsHistory(family);
  const { rig, node } = history;
  const { nodeIP, detector } = rig.config;
  return {
    objects: history.objects,
    apply: (step) => history.apply(step),
    sync: (isFull) => history.sync(isFull),
    async dumps() {
      const { virtualServers, sets, addresses = [], nat, filter } = await node.state();
      const servers = Object.entries(virtualServers).flatMap(([title, real]) => {
        const [, end, protocol = "", scheduler, , timeout] =
          /^(\S+)\/(\w+) (\S+) flags (\d+) timeout (\d+)$/.exec(title) ?? [];
        const service = `${SERVER_OPTIONS[protocol]} ${end}`;
        const persistence = timeout === "0" ? "" : ` -p ${timeout}`;
        return [
          `-A ${service} -s ${scheduler}${persistence}`,
          ...real.map((line) => `-a ${service} -r ${line.replace(" weight ", " -m -w ")}`),
        ];
      });
      const members = Object.entries(sets).flatMap(([title, entries]) => {
        const [name, type, of] = title.split(" ");
        const options = of === "-" ? "range 0-65535" : `family ${of === "IPv6" ? "inet6" : "inet"}`;
        return [`create ${name} ${type} ${options}`, ...entries.map((entry) => `add ${name} ${entry}`)];
      });
      return [
        { kind: "iptables", family, text: filter + nat },
        { kind: "ipset", text: members.join("\n") },
        { kind: "addresses", text: addresses.map((address) => `addr add ${address} dev kube-ipvs0`).join("\n") },
        // ipvsadm prints nothing where there is none; that is known here.
        servers.length === 0
          ? { kind: "chains", tool: "ipvsadm", chains: () => [] }
          : recogniseDump(servers.join("\n"), "virtual servers", readers),
      ];
    },
    async facts() {
      const found = await node.links.addresses(family);
      const own = found.filter(({ link }) => link !== "kube-ipvs0").map(({ address }): IpAddress => address);
      return {
        ...{ nodeIP, detector, zone: rig.driver.zone, serviceCIDRs: [], masqueradesAll: false, hashSeed: 1 },
        ...{ addresses: [...own, LOOPBACK[family]], nodePortAddresses: undefined },
      };
    },
  };
}

const IPTABLES: readonly HistoryOptions[] = IP_FAMILIES.flatMap((family) =>
  ([{ detector: "cidr" }, { detector: "none", masqueradeAll: true }] as const).map((own) => ({
    ...{ family, masqueradeAll: false, localhostNodePorts: family === "IPv4", hasCounters: false, ...own },
    ...{ largeClusterEndpoints: undefined, portsPerTransaction: undefined },
  })),
);

interface Kind {
  readonly text: string;
  readonly variant: string;
  readonly family: IpFamily;
  readonly settings: object;
  readonly begin: () => LiveNode;
}

const KINDS: readonly Kind[] = [
  ...LAYOUT_NAMES.flatMap((layout) =>
    IP_FAMILIES.map((family): Kind => {
      const variant = layout === "Flat" ? "flat" : "nftables";
      return { text: variant, variant, family, settings: {}, begin: () => nftablesNode(layout, family) };
    }),
  ),
  ...IPTABLES.map((options): Kind => {
    const { family, detector, localhostNodePorts } = options;
    const settings = { iptables: { localhostNodePorts } };
    return {
      ...{ text: `iptables, ${detector}`, variant: "iptables", family, settings },
      begin: () => iptablesNode(options),
    };
  }),
  ...IP_FAMILIES.map(
    (family): Kind => ({ text: "ipvs", variant: "ipvs", family, settings: {}, begin: () => ipvsNode(family) }),
  ),
];

for (const { text, variant, family, settings, begin } of KINDS) {
  test(`${text}, ${family}: after each change all packets meet what Services mean`, async (t) => {
    let [states, classes, stale] = [0, 0, 0];
    await fc.assert(
      fc.asyncProperty(fc.array(stepArbitrary(family), { maxLength: 30, size: "max" }), async (steps) => {
        const node = begin();
        for (const step of steps) {
          if (step.kind !== "sync") node.apply(step);
          if (step.kind !== "sync" && states > 0 && (states < UNSYNCED_STATES || stale === 0)) {
            if ((await proved(variant, node, family, settings)).differing > 0) stale += 1;
          }
          const isFull = (step.kind === "sync" && step.isFullSync) || step.kind === "addresses";
          assert.deepEqual((await node.sync(isFull)).failures, []);
          const proof = await proved(variant, node, family, settings);
          assert.deepEqual(differencesIn(proof), []);
          classes += proof.classes;
          states += 1;
        }
      }),
      { numRuns: RUNS },
    );
    assert.ok(stale > 0, "no change needed a sync");
    t.diagnostic(`${states} states, ${classes} classes of packets`);
  });
}
