/** After any history, HNS has what one full sync creates on a fresh host, and foreign objects are unchanged. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port as makePort, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { type HcnVerb, HR, type MemoryHcn } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import fc, { historyRuns } from "../../../testkit/support/fast-check.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import type { Guid } from "./hcn/guid.ts";
import { type JsonObject, listOf, objectOf } from "./hcn/json-fields.ts";
import {
  hostState,
  KernelspaceRig,
  LOOK_MS,
  newHost,
  type RigOptions,
  SYNC_PERIOD_MS,
} from "./testing/kernelspace-rig.ts";

const RUNS = historyRuns("KPTS_PROPERTY_RUNS", 150);
const NAMES = ["a", "b", "c"] as const;
/** The second half may be pods of this node. */
const PODS = ["10.180.1.1", "10.180.1.2", "192.168.2.3", "10.180.0.1", "10.180.0.2"] as const;
const OWN_PODS = PODS.slice(3);
const addresses = fc.constantFrom("203.0.113.5", "203.0.113.6").map(ip);

const service = fc.record({
  port: fc.constantFrom(80, 81),
  nodePort: fc.constantFrom(0, 30080, 30081),
  protocol: fc.constantFrom("TCP" as const, "UDP" as const),
  externalIPs: fc.uniqueArray(addresses, { maxLength: 1 }),
  loadBalancerVIPs: fc.uniqueArray(addresses, { maxLength: 2 }),
  sessionAffinity: fc.constantFrom("None" as const, "ClientIP" as const),
  externalPolicyLocal: fc.boolean(),
  internalPolicyLocal: fc.boolean(),
});
const endpoint = fc.record({
  address: fc.constantFrom(...PODS),
  port: fc.constantFrom(8080, 8080, 9090),
  isReady: fc.boolean(),
  isMistakenForRemote: fc.boolean(),
});

/** Which calls of a sync HNS rejects: from the `first` one on, `count` of all calls or of those that write. */
const fault = fc.record({
  first: fc.nat(12),
  count: fc.integer({ min: 1, max: 4 }),
  /** If set, only calls with this verb. */
  verb: fc.constantFrom(undefined, "Delete" as const, "Create" as const),
  hresult: fc.constantFrom(
    HR.outOfMemory,
    HR.managerStopped,
    HR.elementNotFound,
    HR.portAlreadyExists,
    HR.hasReferences,
  ),
});

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("set" as const),
      name: fc.constantFrom(...NAMES),
      service,
      endpoints: fc.array(endpoint, { maxLength: 4 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("remove" as const), name: fc.constantFrom(...NAMES) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("pod" as const),
      address: fc.constantFrom(...OWN_PODS),
      isThere: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("lose" as const),
      which: fc.nat(20),
      from: fc.constantFrom("Endpoint" as const, "LoadBalancer" as const),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("refuse" as const), fault }) },
  // A Service is deleted, HNS carries that out in part, and then it is wanted again.
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("bring-back" as const),
      name: fc.constantFrom(...NAMES),
      deletions: fc.nat(3),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "restart" as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: "full" as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: "verify" as const }) },
  // Something is gone, and HNS fails in the middle of the read that would notice.
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("look" as const),
      which: fc.nat(20),
      from: fc.constantFrom("Endpoint" as const, "LoadBalancer" as const),
      after: fc.nat(4),
    }),
  },
  // Another program changes a load balancer of ours, under its ID.
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("tamper" as const),
      which: fc.nat(20),
      what: fc.constantFrom("endpoints" as const, "address" as const, "port" as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("hns-restart" as const), after: fc.nat(12) }) },
  { weight: 1, arbitrary: fc.constant({ kind: "network" as const }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("node" as const), isThere: fc.boolean() }) },
);

const SUBJECTS: readonly (readonly [name: string, options: RigOptions])[] = [
  ["L2Bridge", { config: { healthPort: 10256 }, rootName: "root" }],
  ["L2Bridge without changes in place", { canModify: false, hcn: { version: { major: 9, minor: 5 } } }],
  ["overlay", { type: "Overlay", config: { enableDsr: true } }],
];

/** Adds objects of another program to a host. @returns their IDs. */
function addForeign(host: MemoryHcn): readonly Guid[] {
  const theirs = host.addEndpoint({ network: host.addNetwork("docker", "NAT"), addresses: ["172.17.0.2"] });
  const root = host.addEndpoint({ name: "root", addresses: ["10.180.0.254"] });
  const mapping = { Protocol: 6, InternalPort: 80, ExternalPort: 30081 };
  return [
    theirs,
    root,
    host.addLoadBalancer({ HostComputeEndpoints: [theirs], PortMappings: [mapping] }),
    host.addLoadBalancer({
      HostComputeEndpoints: [root],
      FrontendVIPs: ["10.9.0.1", "10.9.0.2"],
      PortMappings: [mapping],
    }),
  ];
}

/** A load balancer as another program might change it. */
function tampered(what: "endpoints" | "address" | "port", document: JsonObject): JsonObject {
  const [mapping] = listOf(document.PortMappings).map(objectOf);
  switch (what) {
    case "endpoints":
      return { HostComputeEndpoints: listOf(document.HostComputeEndpoints).slice(0, 1) };
    case "address":
      return { FrontendVIPs: ["10.96.9.9"] };
    case "port":
      return { PortMappings: [{ ...mapping, InternalPort: 7 }] };
  }
}

/** Adds or removes the overlay subnet of the first two pods, as the CNI plugin does; without it they are outside. */
function setNode(host: MemoryHcn, isThere: boolean): void {
  const [id, document] = [...host.documents("Network")].find(([, { Name }]) => Name === "cbr0") ?? [];
  if (id === undefined) return;
  const Settings = { DestinationPrefix: "10.180.1.0/24", ProviderAddress: "10.0.0.7" };
  const others = listOf(document?.Policies).filter(
    (policy) => objectOf(objectOf(policy).Settings).ProviderAddress !== "10.0.0.7",
  );
  host.setNetwork(id, { Policies: isThere ? [...others, { Type: "RemoteSubnetRoute", Settings }] : others });
}

for (const [name, options] of SUBJECTS) {
  test(`${name}: any history ends where a full sync on a fresh host ends`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 14 }), async (steps) => {
        const cluster = new TestCluster();
        cluster.driver.serviceCIDRs = ["10.96.0.0/12"];
        const host = newHost(options.type, options.hcn);
        const foreign = addForeign(host);
        const pods = new Map<string, Guid>();
        const rig = new KernelspaceRig(cluster.driver, { ...options, host });
        const keys = new Map<string, ReturnType<typeof makePort>>();
        const removed = new Map<string, readonly [port: ReturnType<typeof makePort>, endpoints: readonly Endpoint[]]>();
        const remove = (name: string): void => {
          const before = keys.get(name);
          if (before === undefined) return;
          removed.set(name, [before, cluster.endpoints.get(before.name.key) ?? []]);
          cluster.delete(before);
          keys.delete(name);
        };
        let hasNode = false;
        rig.watch();
        for (const one of steps) {
          let heal = (): void => {};
          if (one.kind === "set") {
            const before = keys.get(one.name);
            if (before !== undefined) cluster.delete(before);
            const made = makePort(one.name, `10.96.0.${NAMES.indexOf(one.name) + 1}`, one.service);
            keys.set(one.name, made);
            const endpoints = new Map(
              one.endpoints.map(({ address, port, isReady, isMistakenForRemote }) => {
                const isLocal = OWN_PODS.some((own) => own === address) && !isMistakenForRemote;
                return [`${address}:${port}`, makeEndpoint(address, port, { isReady, isServing: isReady, isLocal })];
              }),
            );
            cluster.set(made, [...endpoints.values()]);
          } else if (one.kind === "remove") {
            remove(one.name);
          } else if (one.kind === "pod") {
            const id = pods.get(one.address);
            if (one.isThere && id === undefined) pods.set(one.address, host.addEndpoint({ addresses: [one.address] }));
            else if (!one.isThere && id !== undefined) {
              host.removeEndpoint(id);
              pods.delete(one.address);
            }
          } else if (one.kind === "lose" || one.kind === "look") {
            const all = [...host.documents(one.from).keys()].filter(
              (id) => !foreign.includes(id) && ![...pods.values()].includes(id),
            );
            const id = all[one.which % Math.max(1, all.length)];
            if (id !== undefined && one.from === "Endpoint") host.removeEndpoint(id);
            else if (id !== undefined) host.loseLoadBalancer(id);
            if (one.kind === "look") {
              let left = one.after;
              const end = host.refuse(() => (left-- > 0 ? undefined : HR.outOfMemory));
              await rig.clock.advance(LOOK_MS);
              end();
            }
          } else if (one.kind === "tamper") {
            // Both the state before and the state after are seen.
            await rig.clock.advance(SYNC_PERIOD_MS + LOOK_MS);
            const ours = [...host.documents("LoadBalancer")].filter(([id]) => !foreign.includes(id));
            const [id, document] = ours[one.which % Math.max(1, ours.length)] ?? [];
            if (id !== undefined) host.setLoadBalancer(id, tampered(one.what, document ?? {}));
            await rig.clock.advance(SYNC_PERIOD_MS + LOOK_MS);
          } else if (one.kind === "refuse") {
            const { hresult } = one.fault;
            let [skip, left] = [one.fault.first, one.fault.count];
            // No program could detect this lie: HNS denies an object that it has.
            const isLie = (verb: HcnVerb) => hresult === HR.elementNotFound && (verb === "Open" || verb === "Query");
            const isMeant = (verb: HcnVerb) => one.fault.verb === undefined || one.fault.verb === verb;
            heal = host.refuse(({ verb }) =>
              !isMeant(verb) || skip-- > 0 || left-- <= 0 || isLie(verb) ? undefined : hresult,
            );
          } else if (one.kind === "bring-back") {
            remove(one.name);
            let left = one.deletions;
            const end = host.refuse(({ verb }) => (verb === "Delete" && left-- <= 0 ? HR.hasReferences : undefined));
            await rig.sync().catch(() => {});
            end();
            const [before, endpoints] = removed.get(one.name) ?? [];
            if (before === undefined || keys.has(one.name)) continue;
            keys.set(one.name, before);
            cluster.set(before, endpoints);
          } else if (one.kind === "restart") {
            await rig.restart();
            rig.watch();
          } else if (one.kind === "hns-restart") {
            let left = one.after;
            let start = (): void => {};
            // HNS restarts in the middle of the sync: handles and registrations are void, everything else is back.
            const ends = host.refuse(() => {
              if (left-- === 0) start = host.stop();
              return undefined;
            });
            heal = () => {
              ends();
              start();
            };
          } else if (one.kind === "network") {
            const [id, document] = [...host.documents("Network")].find(([, { Name }]) => Name === "cbr0") ?? [];
            if (id === undefined || document === undefined) continue;
            host.removeNetwork(id);
            for (const [endpoint, { HostComputeNetwork }] of host.documents("Endpoint")) {
              if (HostComputeNetwork === id && !foreign.includes(endpoint)) host.removeEndpoint(endpoint);
            }
            pods.clear();
            await rig.sync().catch(() => {});
            host.addNetworkAgain(document);
          } else if (one.kind === "node") {
            hasNode = one.isThere;
            setNode(host, hasNode);
          } else if (one.kind === "verify") await rig.clock.advance(LOOK_MS);
          await rig.sync({ full: one.kind === "full" }).catch(() => {});
          heal();
          assert.equal(host.openHandles, 0, "every handle is closed");
        }
        // In the end every pod has its endpoint, and losses have been noticed.
        for (const address of OWN_PODS)
          if (!pods.has(address)) pods.set(address, host.addEndpoint({ addresses: [address] }));
        await rig.clock.advance(2 * LOOK_MS);
        await rig.sync();

        const fresh = newHost(options.type, options.hcn);
        addForeign(fresh);
        setNode(fresh, hasNode);
        for (const address of OWN_PODS) fresh.addEndpoint({ addresses: [address] });
        const other = new TestCluster();
        for (const [key, value] of cluster.declared) other.set(value, cluster.endpoints.get(key) ?? []);
        const reference = new KernelspaceRig(other.driver, { ...options, host: fresh });
        await reference.sync();
        assert.deepEqual(hostState(host), hostState(fresh));

        host.takeCalls();
        await rig.sync({ full: true });
        const isHeld = [...cluster.declared.values()].some(
          ({ nodePort, protocol }) => nodePort === 30081 && protocol === "TCP",
        );
        if (!isHeld) assert.deepEqual(host.takeWrites(), [], "a repeated look writes nothing");
        await rig.close();
      }),
      { numRuns: RUNS },
    );
  });
}
