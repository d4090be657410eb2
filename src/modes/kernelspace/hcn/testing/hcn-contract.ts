/** The contract of every {@link HcnCalls}, seen through {@link Hcn}: the in-memory fake, and under Wine the C library behind koffi. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { IpAddress } from "../../../../net/ip.ts";
import type { EndpointSettings, LoadBalancerSettings } from "../documents.ts";
import { type Guid, ZERO_GUID } from "../guid.ts";
import { Hcn } from "../hcn.ts";
import { type HcnCalls, HNS_NOTICES } from "../hcn-calls.ts";
import { HcnError, type HcnErrorClass } from "../hcn-error.ts";

/**
 * A host with the L2Bridge network `cbr0` of the subnet 10.180.0.0/16, one endpoint `pod-1` with the address 10.180.0.10, and no
 * load balancers. The version of HNS is 15.5.
 */
export interface HcnRig {
  readonly calls: HcnCalls;
  /** Sets the version that HNS reports from now on. */
  setVersion(major: number, minor: number): Promise<void>;
  /** Makes HNS send a notification, a number of `HCN_NOTIFICATIONS`. */
  notify(type: number): Promise<void>;
}

export interface HcnSubject {
  readonly name: string;
  readonly open: () => Promise<HcnRig>;
}

const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below

async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; !condition(); tries++) {
    assert.ok(tries < 1_000, "HNS tells nothing");
    await sleep(10);
  }
}

const MAPPING = { protocol: 6, internalPort: 8080, externalPort: 80, distribution: 0, flags: 0 };

function settings(endpoints: readonly Guid[], change: Partial<LoadBalancerSettings> = {}): LoadBalancerSettings {
  return { endpoints, sourceVip: undefined, frontendVip: ip("10.96.0.1"), mapping: MAPPING, flags: 0, ...change };
}

const answers =
  (wanted: HcnErrorClass, code: number) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof HcnError, String(error));
    assert.equal(error.code, code, error.message);
    assert.equal(error.class, wanted);
    return true;
  };

export function runHcnContract({ name, open }: HcnSubject): void {
  async function host() {
    const rig = await open();
    const hcn = new Hcn(rig.calls);
    const network = await hcn.named("Network", "cbr0");
    assert.ok(network !== undefined);
    const [pod] = await hcn.all("Endpoint", { VirtualNetwork: network.id });
    assert.ok(pod !== undefined);
    const remote = (address: string): EndpointSettings => ({
      network: network.id,
      address: ip(address),
      mac: "02-11-0a-b4-01-01",
      isRemote: true,
    });
    return { ...rig, hcn, network, pod, remote };
  }

  describe(`HCN: ${name}`, () => {
    test("says which version it is, and has policy lists", async () => {
      const { hcn, setVersion } = await host();
      assert.deepEqual(await hcn.version(), { major: 15, minor: 5 });
      await setVersion(9, 3);
      assert.deepEqual(await hcn.version(), { major: 9, minor: 3 });
      await hcn.policyLists();
    });

    test("lists load balancers at a glance: by ID, and with another text when one changes", async () => {
      const { hcn, pod, remote } = await host();
      const other = await hcn.createEndpoint(remote("10.180.1.1"));
      const mapping = { protocol: 6, internalPort: 8080, externalPort: 80, distribution: 0, flags: 0 };
      const settings = { endpoints: [pod.id], sourceVip: undefined, frontendVip: ip("10.96.0.1"), mapping, flags: 0 };
      const { id } = await hcn.createLoadBalancer(settings);
      const { id: second } = await hcn.createLoadBalancer({ ...settings, frontendVip: ip("10.96.0.2") });
      const before = await hcn.policyLists();
      assert.deepEqual([...before.keys()], [id, second]);
      await hcn.modifyLoadBalancer(id, { ...settings, endpoints: [pod.id, other.id] });
      const after = await hcn.policyLists();
      assert.notEqual(after.get(id), before.get(id));
      assert.equal(after.get(second), before.get(second));
      await hcn.delete("LoadBalancer", id);
      assert.deepEqual([...(await hcn.policyLists()).keys()], [second]);
    });

    test("finds networks and endpoints by name, in any case of letters", async () => {
      const { hcn, network, pod } = await host();
      assert.equal(network.type, "L2Bridge");
      assert.equal((await hcn.named("Network", "CBR0"))?.id, network.id);
      assert.equal(await hcn.named("Network", "cbr1"), undefined);
      assert.deepEqual(await hcn.ids("Network", { Name: "cbr0" }), [network.id]);
      assert.deepEqual(await hcn.get("Network", network.id), network);
      assert.deepEqual(pod.addresses, ["10.180.0.10"]);
      assert.equal(pod.isRemote, false);
      assert.equal((await hcn.named("Endpoint", "pod-1"))?.id, pod.id);
      assert.deepEqual(await hcn.ids("Endpoint", { VirtualNetwork: network.id }), [pod.id]);
      assert.deepEqual(await hcn.all("Endpoint", { VirtualNetwork: ZERO_GUID }), []);
    });

    test("an endpoint is made, seen and deleted; to delete it again changes nothing", async () => {
      const { hcn, network, pod, remote } = await host();
      const made = await hcn.createEndpoint(remote("10.180.1.1"));
      assert.deepEqual(made.addresses, ["10.180.1.1"]);
      assert.equal(made.isRemote, true);
      assert.equal(made.mac, "02:11:0a:b4:01:01");
      assert.equal(made.network, network.id);
      assert.deepEqual(await hcn.all("Endpoint", { VirtualNetwork: network.id }), [pod, made]);
      await hcn.delete("Endpoint", made.id);
      await hcn.delete("Endpoint", made.id);
      assert.equal(await hcn.get("Endpoint", made.id), undefined);
    });

    test("an endpoint of an unknown network is refused", async () => {
      const { hcn, remote } = await host();
      const lost = { ...remote("10.180.1.1"), network: ZERO_GUID };
      await assert.rejects(hcn.createEndpoint(lost), answers("absent", 0x490));
    });

    test("a local endpoint must be in a subnet of the network", async () => {
      const { hcn, remote } = await host();
      const outside = { ...remote("192.0.2.1"), isRemote: false };
      await assert.rejects(hcn.createEndpoint(outside), answers("refused", 0x803b_002f));
      const inside = await hcn.createEndpoint({ ...remote("10.180.0.11"), isRemote: false });
      assert.equal(inside.isRemote, false);
    });

    test("a load balancer is made, read as it was written, changed and deleted", async () => {
      const { hcn, pod, remote } = await host();
      const other = await hcn.createEndpoint(remote("10.180.1.1"));
      const wanted = settings([pod.id], {
        sourceVip: ip("10.180.0.2"),
        mapping: { ...MAPPING, distribution: 2, flags: 28 },
        flags: 1,
      });
      const made = await hcn.createLoadBalancer(wanted);
      const { frontendVip, mapping, ...same } = wanted;
      assert.deepEqual(made, { id: made.id, ...same, frontendVips: [frontendVip], mappings: [mapping] });
      assert.deepEqual(await hcn.all("LoadBalancer"), [made]);
      const changed = await hcn.modifyLoadBalancer(made.id, { ...wanted, endpoints: [pod.id, other.id] });
      assert.deepEqual(changed, { ...made, endpoints: [pod.id, other.id] });
      assert.deepEqual(await hcn.get("LoadBalancer", made.id), changed);
      await hcn.delete("LoadBalancer", made.id);
      await hcn.delete("LoadBalancer", made.id);
      assert.deepEqual(await hcn.ids("LoadBalancer"), []);
    });

    test("a load balancer at the node's own address has no VIP", async () => {
      const { hcn, pod } = await host();
      const made = await hcn.createLoadBalancer(settings([pod.id], { frontendVip: undefined, flags: 2 }));
      assert.deepEqual(made.frontendVips, []);
      assert.equal(made.flags, 2);
    });

    test("two load balancers do not share a frontend, even with other internal ports (windows-practice.md §9.24)", async () => {
      const { hcn, pod } = await host();
      await hcn.createLoadBalancer(settings([pod.id]));
      const rival = settings([pod.id], { mapping: { ...MAPPING, internalPort: 9090 } });
      await assert.rejects(hcn.createLoadBalancer(rival), answers("taken", 0x803b_0013));
      await hcn.createLoadBalancer(settings([pod.id], { mapping: { ...MAPPING, protocol: 17 } }));
      await hcn.createLoadBalancer(settings([pod.id], { frontendVip: ip("10.96.0.2") }));
      await hcn.createLoadBalancer(settings([pod.id], { frontendVip: undefined }));
      await hcn.createLoadBalancer(settings([pod.id], { frontendVip: undefined, flags: 2 }));
      await assert.rejects(
        hcn.createLoadBalancer(settings([pod.id], { frontendVip: undefined })),
        answers("taken", 0x803b_0013),
      );
    });

    test("what a load balancer lacks is refused with its own code", async () => {
      const { hcn, pod } = await host();
      await assert.rejects(hcn.createLoadBalancer(settings([])), answers("refused", 0x803b_001c));
      await assert.rejects(hcn.createLoadBalancer(settings([ZERO_GUID])), answers("absent", 0x803b_0002));
      const portless = settings([pod.id], { mapping: { ...MAPPING, internalPort: 0 } });
      await assert.rejects(hcn.createLoadBalancer(portless), answers("refused", 0x803b_002d));
      assert.deepEqual(await hcn.ids("LoadBalancer"), []);
    });

    test("before 15.5, load balancers cannot be changed", async () => {
      const { hcn, pod, setVersion } = await host();
      const made = await hcn.createLoadBalancer(settings([pod.id]));
      await setVersion(15, 4);
      await assert.rejects(hcn.modifyLoadBalancer(made.id, settings([pod.id])), answers("unsupported", 0x8000_4001));
      await assert.rejects(hcn.modifyLoadBalancer(ZERO_GUID, settings([pod.id])), answers("absent", 0x490));
    });

    test("an endpoint goes although load balancers name it, which keep its ID", async () => {
      const { hcn, pod } = await host();
      const made = await hcn.createLoadBalancer(settings([pod.id]));
      await hcn.delete("Endpoint", pod.id);
      assert.deepEqual(await hcn.get("LoadBalancer", made.id), made);
    });

    test("what has gone is forgotten once everything is listed", async () => {
      const { hcn, calls, remote } = await host();
      const made = await hcn.createEndpoint(remote("10.180.1.1"));
      await calls.delete("Endpoint", made.id);
      assert.deepEqual(await hcn.known("Endpoint", made.id), made, "as it was read last");
      await hcn.all("Endpoint");
      assert.equal(await hcn.known("Endpoint", made.id), undefined);
    });

    test("many endpoints are made on a network that is opened once", async () => {
      const { hcn, network, pod, remote } = await host();
      const made = await hcn.makeEndpoints(network.id, async (create) => {
        await assert.rejects(create({ ...remote("192.0.2.1"), isRemote: false }), answers("refused", 0x803b_002f));
        return [await create(remote("10.180.1.1")), await create(remote("10.180.1.2"))];
      });
      assert.deepEqual(await hcn.all("Endpoint", { VirtualNetwork: network.id }), [pod, ...made]);
      assert.equal(await hcn.makeEndpoints(ZERO_GUID, async () => 1), 1, "no call when none is made");
    });

    test("HNS tells on its own, until it is told that this is enough", async () => {
      const { hcn, notify } = await host();
      const first: number[] = [];
      const second: number[] = [];
      const ends = [await hcn.watch((notice) => first.push(notice)), await hcn.watch((notice) => second.push(notice))];
      await notify(4);
      await notify(9);
      await notify(77);
      await until(() => second.length === 3 && first.length === 3);
      await ends[0]?.();
      await notify(0x0100_0000);
      await until(() => second.length === 4);
      await ends[1]?.();
      assert.deepEqual(first, [HNS_NOTICES.networkDeleted, HNS_NOTICES.endpointAttached, 77]);
      assert.deepEqual(second, [...first, HNS_NOTICES.serviceGone]);
      const again: number[] = [];
      const end = await hcn.watch((notice) => again.push(notice));
      await notify(2);
      await until(() => again.length === 1);
      await end();
      assert.deepEqual(again, [HNS_NOTICES.networkCreated]);
    });

    test("texts that are no JSON and IDs that are none are refused", async () => {
      const { calls } = await host();
      await assert.rejects(calls.createLoadBalancer("{"), answers("refused", 0x803b_001b));
      const query = '{"SchemaVersion":{"Major":2,"Minor":0},"Filter":"{\\"ID\\":\\"nonsense\\"}"}';
      await assert.rejects(calls.enumerate("LoadBalancer", query), answers("refused", 0x803b_0019));
    });

    test("any text arrives whole", async () => {
      const { calls, hcn, pod } = await host();
      const name = 'Grüße "aus" Köln \\ 🐳';
      const document = { HostComputeEndpoints: [pod.id], Name: name, PortMappings: [{ Protocol: 6, InternalPort: 1 }] };
      const handle = await calls.createLoadBalancer(JSON.stringify(document));
      try {
        const read: unknown = JSON.parse(await calls.query("LoadBalancer", handle, "{}"));
        assert.deepEqual(read, { ID: (await hcn.ids("LoadBalancer"))[0], ...document });
      } finally {
        await calls.close("LoadBalancer", handle);
      }
    });
  });
}
