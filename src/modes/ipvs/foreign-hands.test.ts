/** Changes by other programs in the kernel: left alone, adopted, or noticed and repaired. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { IptablesError } from "../../kernel/iptables/iptables.ts";
import { ip } from "../../model/testing/records.ts";
import {
  type BackendRig,
  type BackendRigOptions,
  newModel,
  type TestModel,
  VERIFY_PERIOD_MS,
} from "./testing/backend-rig.ts";
import type { MemoryNode } from "./testing/memory-node.ts";

const PLAIN = port("plain", "10.96.0.1");
const OTHER = port("other", "10.96.0.2");

function twoServices(options: BackendRigOptions = {}): TestModel {
  const model = newModel(options);
  model.set(PLAIN, [remote("10.1.1.5")]);
  model.set(OTHER, [remote("10.1.1.6")]);
  return model;
}

/** Requires that the damage was noticed, and that a sync leaves the same state as a full sync on a fresh node. */
async function healed(rig: BackendRig): Promise<void> {
  assert.ok(rig.asked.repairs > 0, "the damage was not noticed");
  assert.deepEqual((await rig.sync()).failures, []);
  assert.deepEqual(await rig.node.state(), await rig.fromNothing());
}

function remoteServer(address: string) {
  return { address: ip(address), protocol: "TCP", port: 80 } as const;
}

test("a foreign virtual server is removed, unless it is excluded", async () => {
  const model = twoServices({ excludeCIDRs: ["203.0.113.0/24"] });
  const foreign = { protocol: "TCP", port: 443, scheduler: "wlc", flags: 0, timeoutSeconds: 0 } as const;
  for (const address of ["203.0.113.7", "198.51.100.7", "10.96.0.1"]) {
    const virtualServer = { ...foreign, address: ip(address) };
    await model.rig.node.ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
  }
  await model.rig.sync();
  assert.deepEqual(Object.keys((await model.rig.node.state()).virtualServers), [
    "10.96.0.1:80/TCP rr flags 0 timeout 0",
    "10.96.0.2:80/TCP rr flags 0 timeout 0",
    "203.0.113.7:443/TCP wlc flags 0 timeout 0",
  ]);
});

test("an address with another prefix length is removed, also where the address itself is wanted", async (t) => {
  const model = twoServices();
  const { rig } = model;
  t.after(() => rig.close());
  await rig.sync();
  rig.watch();
  const state = await rig.node.state();
  for (const address of ["10.98.1.1", "10.96.0.1"]) {
    rig.node.links.addForeignAddress("kube-ipvs0", ip(address), 24);
    rig.asked.repairs = 0;
    await rig.clock.advance(VERIFY_PERIOD_MS);
    await healed(rig);
    rig.asked.repairs = 0;
    await rig.clock.advance(2 * VERIFY_PERIOD_MS);
    assert.equal(rig.asked.repairs, 0, "repaired once and for all");
  }
  assert.deepEqual(await rig.node.state(), state);
});

test("a wanted IPv6 address with another prefix length is bound as a whole address in the same sync", async (t) => {
  const model = newModel({ family: "IPv6" });
  const { rig } = model;
  t.after(() => rig.close());
  model.set(port("plain", "fd00:96::1"), [remote("fd00:1::5")]);
  await rig.node.links.ensureDummy("kube-ipvs0");
  rig.node.links.addForeignAddress("kube-ipvs0", ip("fd00:96::1"), 64);
  assert.deepEqual((await rig.sync()).failures, []);
  assert.deepEqual(await rig.node.state(), await rig.fromNothing());
});

test("tables that are flushed during a repair are repaired at once, a few times", async () => {
  const model = twoServices();
  const { rig } = model;
  await rig.sync();
  const { iptables } = rig.node;
  for (const [times, failures] of [
    [2, 0],
    [9, 1],
  ] as const) {
    let left: number = times;
    const ensureRule = iptables.ensureRule.bind(iptables);
    iptables.flush("nat");
    iptables.ensureRule = async (...args) => {
      left -= 1;
      if (left >= 0) {
        iptables.flush("nat");
        throw new IptablesError("failed", "iptables -I", 2, "Couldn't load target `KUBE-SERVICES'");
      }
      await ensureRule(...args);
    };
    const { failures: found } = await rig.sync({ full: true });
    iptables.ensureRule = ensureRule;
    assert.equal(found.length, failures, JSON.stringify(found));
  }
  assert.deepEqual((await rig.sync({ full: true })).failures, []);
});

for (const what of ["written", "read"] as const) {
  test(`a full sync that finds no rules, while they cannot be ${what}: the next sync writes them`, async (t) => {
    const { rig } = twoServices();
    await rig.sync();
    const { iptables } = rig.node;
    iptables.flush("nat", { deleteChains: true });
    if (what === "written") iptables.isLocked = true;
    else {
      const refuse = () => Promise.reject(new IptablesError("lock_held", "iptables-save", 4, "xtables lock"));
      t.mock.method(iptables, "save", refuse, { times: 1 });
    }
    assert.equal((await rig.sync({ full: true })).failures.length, 1);
    iptables.isLocked = false;
    assert.deepEqual((await rig.sync()).failures, []);
    assert.deepEqual(await rig.node.state(), await rig.fromNothing());
  });
}

test("a table that the tool cannot print gets each jump once, and its rules when they change", async (t) => {
  const model = twoServices();
  const { rig } = model;
  t.after(() => rig.close());
  const { iptables } = rig.node;
  const unreadable = t.mock.method(iptables, "save", () =>
    Promise.reject(new IptablesError("unreadable", "iptables-save", 0, "Table `nat' is incompatible")),
  );
  assert.deepEqual((await rig.sync()).failures, []);
  rig.watch();
  for (let n = 0; n < 3; n += 1) {
    await rig.clock.advance(VERIFY_PERIOD_MS);
    assert.deepEqual((await rig.sync({ full: true })).failures, []);
  }
  assert.equal(rig.asked.repairs, 0);
  model.set(port("late", "10.96.0.3", { nodePort: 30080 }), [remote("10.1.1.7")]);
  assert.deepEqual((await rig.sync()).failures, []);
  unreadable.mock.restore();
  assert.deepEqual(await rig.node.state(), await rig.fromNothing());
});

test("a foreign virtual server at the very address of a service is taken over", async () => {
  const model = twoServices({ excludeCIDRs: ["10.96.0.0/16"] });
  const virtualServer = {
    address: ip("10.96.0.1"),
    protocol: "TCP",
    port: 80,
    scheduler: "wlc",
    flags: 1,
    timeoutSeconds: 9,
  } as const;
  const realServer = { address: ip("10.9.9.9"), port: 1, weight: 7 };
  await model.rig.node.ipvs.apply([
    { kind: "add-virtual-server", virtualServer },
    { kind: "add-real-server", virtualServer, realServer },
  ]);
  await model.rig.sync();
  const { virtualServers } = await model.rig.node.state();
  assert.deepEqual(virtualServers["10.96.0.1:80/TCP rr flags 0 timeout 0"], ["10.1.1.5:8080 weight 1"]);
});

test("one that appears for a new service between two syncs is taken over, too", async () => {
  const model = twoServices();
  await model.rig.sync();
  const virtualServer = { ...remoteServer("10.96.0.3"), scheduler: "wlc", flags: 0, timeoutSeconds: 0 } as const;
  await model.rig.node.ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
  model.set(port("late", "10.96.0.3"), [remote("10.1.1.7")]);
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("the module is unloaded: the sync says so, and the state is back with the module", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  await model.rig.sync();
  model.rig.watch();
  model.rig.node.ipvs.unload();
  await model.rig.clock.advance(VERIFY_PERIOD_MS);
  assert.ok(model.rig.asked.repairs > 0, "the damage was not noticed");
  await assert.rejects(model.rig.sync(), /the module ip_vs is gone/);
  const { repairs } = model.rig.asked;
  await model.rig.clock.advance(2 * VERIFY_PERIOD_MS);
  assert.equal(model.rig.asked.repairs, repairs, "what is known to be wrong is not found again");
  assert.deepEqual(
    (await model.rig.node.links.addresses("IPv4")).filter(({ link }) => link === "kube-ipvs0").length,
    2,
  );
  model.setEndpoints(PLAIN, [remote("10.1.1.8")]);
  await assert.rejects(model.rig.sync(), /the module ip_vs is gone/);
  model.rig.node.ipvs.load();
  const { settingsRestored } = model.rig;
  await healed(model.rig);
  assert.equal(model.rig.settingsRestored, settingsRestored + 1, "parameters are lost with the module");
});

test("the dummy device is deleted: it is back at once, with its addresses", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  await model.rig.sync();
  model.rig.watch();
  await model.rig.clock.advance(1000);
  model.rig.node.links.deleteForeignLink("kube-ipvs0");
  await model.rig.clock.advance(1000);
  assert.deepEqual(model.rig.logged("warn"), ["Another program removed the device kube-ipvs0; repairing it"]);
  await healed(model.rig);
});

test("the dummy device is deleted, and a service comes before that was noticed", async () => {
  const model = twoServices();
  await model.rig.sync();
  model.rig.node.links.deleteForeignLink("kube-ipvs0");
  model.set(port("late", "10.96.0.3"));
  assert.deepEqual((await model.rig.sync()).failures, []);
  const { addresses } = await model.rig.node.state();
  assert.ok(addresses?.includes("10.96.0.3"));
});

test("kube-ipvs0 is a device of another kind", async () => {
  const model = twoServices();
  model.rig.node.links.addForeignLink("kube-ipvs0", "bridge");
  await assert.rejects(
    model.rig.sync(),
    /kube-ipvs0 is a bridge device, a dummy device is needed: delete or rename it/,
  );
});

test("a single address is removed by another program", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  await model.rig.sync();
  model.rig.watch();
  await model.rig.clock.advance(1000);
  model.rig.node.links.removeForeignAddress("kube-ipvs0", ip("10.96.0.1"));
  await model.rig.clock.advance(1000);
  await healed(model.rig);
});

for (const [what, damage] of [
  ["all virtual servers", (node: MemoryNode) => node.ipvs.flush()],
  [
    "a real server",
    (node: MemoryNode) => {
      const realServer = { address: ip("10.1.1.5"), port: 8080 };
      return node.ipvs.apply([{ kind: "delete-real-server", virtualServer: remoteServer("10.96.0.1"), realServer }]);
    },
  ],
  [
    "a weight",
    (node: MemoryNode) => {
      const realServer = { address: ip("10.1.1.5"), port: 8080, weight: 0 };
      return node.ipvs.apply([{ kind: "update-real-server", virtualServer: remoteServer("10.96.0.1"), realServer }]);
    },
  ],
  [
    "an additional virtual server",
    (node: MemoryNode) => {
      const virtualServer = { ...remoteServer("10.96.9.9"), scheduler: "rr", flags: 0, timeoutSeconds: 0 };
      return node.ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
    },
  ],
  ["the route of an address", async (node: MemoryNode) => node.links.removeForeignRoute("kube-ipvs0", ip("10.96.0.1"))],
  ["the members of a set", (node: MemoryNode) => node.ipset.flush("KUBE-CLUSTER-IP")],
  [
    "the sets, after the rules",
    async (node: MemoryNode) => {
      node.iptables.flush("nat");
      node.iptables.flush("filter");
      for (const { name } of await node.ipset.sets()) await node.ipset.destroy(name);
    },
  ],
  ["the rules of nat", async (node: MemoryNode) => node.iptables.flush("nat")],
  ["the rules and chains of filter", async (node: MemoryNode) => node.iptables.flush("filter", { deleteChains: true })],
  [
    "a jump",
    (node: MemoryNode) => {
      const comment = ["-m", "comment", "--comment", "kubernetes service portals"];
      return node.iptables.deleteRule("nat", "OUTPUT", [...comment, "-j", "KUBE-SERVICES"]);
    },
  ],
] as const) {
  test(`another program changes ${what}: seen with the next verification, and mended`, async (t) => {
    const model = twoServices();
    t.after(() => model.rig.close());
    await model.rig.sync();
    model.rig.watch();
    await model.rig.clock.advance(3 * VERIFY_PERIOD_MS);
    assert.equal(model.rig.asked.repairs, 0, "nothing has happened yet");
    await damage(model.rig.node);
    await model.rig.clock.advance(VERIFY_PERIOD_MS);
    assert.deepEqual(model.rig.logged("warn"), [
      "Another program changed state of the ipvs mode in the kernel; repairing it",
    ]);
    await healed(model.rig);
  });
}

test("a route that is removed again right after its address was bound again comes back, too", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  await model.rig.sync();
  model.rig.watch();
  const { links } = model.rig.node;
  for (const repairs of [1, 2]) {
    links.removeForeignRoute("kube-ipvs0", ip("10.96.0.1"));
    await model.rig.clock.advance(VERIFY_PERIOD_MS);
    assert.equal(model.rig.asked.repairs, repairs);
    await healed(model.rig);
  }
});

test("where an address bound again has no route either, that is not tried again and again", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  await model.rig.sync();
  model.rig.watch();
  const { links } = model.rig.node;
  links.localRoutes = async () => [];
  await model.rig.clock.advance(VERIFY_PERIOD_MS);
  assert.equal(model.rig.asked.repairs, 1);
  await model.rig.sync();
  await model.rig.clock.advance(5 * VERIFY_PERIOD_MS);
  assert.equal(model.rig.asked.repairs, 1);
});

test("a verification that takes long gives way to a sync", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  await model.rig.sync();
  model.rig.watch();
  const { ipset } = model.rig.node;
  const members = ipset.members.bind(ipset);
  ipset.members = (_, signal) =>
    new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  await model.rig.clock.advance(VERIFY_PERIOD_MS);
  ipset.members = members;
  model.set(port("late", "10.96.0.3"));
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual([model.rig.logged("error"), model.rig.asked.repairs], [[], 0]);
});

test("what others do is mended, too, where changes never leave the time for a verification", async (t) => {
  const model = twoServices();
  const { rig } = model;
  t.after(() => rig.close());
  await rig.sync();
  rig.watch();
  await rig.node.ipvs.flush();
  const { ipset } = rig.node;
  const members = ipset.members.bind(ipset);
  for (let period = 1; period <= 10; period += 1) {
    ipset.members = (_, signal) =>
      new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
    await rig.clock.advance(VERIFY_PERIOD_MS);
    ipset.members = members;
    model.set(port("late", "10.96.0.3"), [remote(`10.1.1.${100 + period}`)]);
    await rig.sync();
  }
  assert.deepEqual(rig.logged("error"), []);
  assert.deepEqual(await rig.node.state(), await rig.fromNothing());
});

test("after a verification that took long, the next one comes within a period as well", async (t) => {
  const model = twoServices();
  t.after(() => model.rig.close());
  const { rig } = model;
  await rig.sync();
  rig.watch();
  const { ipset } = rig.node;
  const members = ipset.members.bind(ipset);
  const LOOK_MS = VERIFY_PERIOD_MS / 4;
  ipset.members = async (...args) => {
    ipset.members = members;
    await rig.clock.sleep(LOOK_MS, new AbortController().signal);
    return await members(...args);
  };
  await rig.clock.advance(VERIFY_PERIOD_MS);
  await rig.clock.advance(LOOK_MS);
  await rig.clock.advance(1);
  await rig.node.iptables.flush("nat");
  assert.equal(rig.asked.repairs, 0);
  await rig.clock.advance(VERIFY_PERIOD_MS);
  assert.equal(rig.asked.repairs, 1);
});

test("what another program has deleted before us is deleted", async () => {
  const model = twoServices();
  await model.rig.sync();
  await model.rig.node.ipvs.apply([{ kind: "delete-virtual-server", virtualServer: remoteServer("10.96.0.1") }]);
  model.delete(PLAIN);
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("a set that another program has destroyed is made again when it is needed", async () => {
  const model = twoServices();
  await model.rig.sync();
  await model.rig.node.ipset.destroy("KUBE-NODE-PORT-SCTP-HASH");
  model.set(port("late", "10.96.0.3", { protocol: "SCTP", nodePort: 30080 }));
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});
