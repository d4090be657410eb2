/** What the programs at interfaces are told, where they are, and that the rules are there without them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { local, port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { BpfMachine, memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { testYielder } from "../../async/testing/test-yielder.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { BpfError } from "../../kernel/bpf/bpf-error.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import { nodePortAddresses } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import type { Backend } from "../../sync/backend.ts";
import { PacketStage } from "./packet-stage.ts";

const NOT_LED = "No packets are led by programs; the nftables rules lead all packets";
const LED = "Packets of other machines to services are led by programs";
const PODS: LocalTrafficDetector = { kind: "cidr", cidr: "10.180.0.0/16" as Cidr };

/** A stage over kernels in memory. Faults and interfaces may be changed between syncs. */
class StageRig {
  readonly cluster = new TestCluster();
  readonly machine = new BpfMachine();
  readonly log: LogLine[] = [];
  readonly stage: PacketStage;
  /** By name: index and addresses. */
  readonly interfaces = new Map<string, readonly [index: number, addresses: readonly string[]]>();
  fault: Partial<Record<"createMap" | "loadProgram" | "attachToInterface", string>> = {};
  rulesFail = false;
  /** As the kernel does it for chains of nat. */
  rulesLoadModules = true;
  ruleSyncs = 0;
  closed = 0;
  reported = -1;
  #onAddress: () => void = () => {};

  constructor(t: { after(end: () => unknown): void }, names: readonly string[] = [], detector = PODS) {
    this.setInterface("lo", 1, "127.0.0.1");
    this.setInterface("eth0", 2, "10.200.0.2");
    this.setInterface("cni0", 3, "10.180.0.1");
    const rules: Backend = {
      mode: "ebpf",
      family: "IPv4",
      restMs: 7,
      usesServiceCIDRs: true,
      sync: async () => {
        this.ruleSyncs++;
        if (this.rulesFail) throw new Error("no rules");
        this.machine.hasConntrack ||= this.rulesLoadModules;
        return { failures: [], noLocalEndpoints: { internal: 0, external: 0 } };
      },
      close: async () => void this.closed++,
    };
    this.stage = new PacketStage({
      rules,
      bpf: this.#faulty(memoryBpf(this.machine)),
      links: {
        addresses: async (family) =>
          [...this.interfaces].flatMap(([link, [, addresses]]) =>
            addresses
              .filter((address) => address.includes(":") === (family === "IPv6"))
              .map((address) => ({ address: ip(address), prefixLength: 24, link })),
          ),
        link: async (name) => {
          const found = this.interfaces.get(name);
          return found && { name, index: found[0], kind: undefined, isUp: true };
        },
      },
      addressWatch: {
        watch: (onChange, signal) => {
          this.#onAddress = onChange;
          return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
        },
      },
      interfaces: { names, nodeIP: ip("10.200.0.2"), detector },
      nodeName: "node-a",
      masqueradesAll: false,
      nodePortAddresses: nodePortAddresses("IPv4", ["10.200.0.0/24"]),
      metrics: {
        packetInterfaces: {
          set: (value) => {
            this.reported = value;
          },
        },
      },
      log: recordingLogger(this.log),
      yielder: testYielder,
    });
    t.after(() => this.stage.close());
  }

  setInterface(name: string, index: number, ...addresses: readonly string[]): void {
    this.interfaces.set(name, [index, addresses]);
    this.machine.interfaces.add(index);
  }

  removeInterface(name: string): void {
    const found = this.interfaces.get(name);
    if (found !== undefined) this.machine.interfaces.remove(found[0]);
    this.interfaces.delete(name);
  }

  /** As the kernel announces it. @returns how often a sync was asked for. */
  watch(t: { after(end: () => unknown): void }): { readonly asked: () => number; readonly tell: () => void } {
    const stop = new AbortController();
    let asked = 0;
    t.after(() => stop.abort());
    const watching = this.stage.monitor(
      () => {},
      stop.signal,
      () => void asked++,
    );
    watching.catch((error: unknown) => this.log.push({ level: "error", message: "watching failed", error, facts: {} }));
    return { asked: () => asked, tell: () => this.#onAddress() };
  }

  sync(full = false) {
    return this.cluster.driver.sync(this.stage, { full });
  }

  /** Number of programs at each interface. */
  get attached(): Readonly<Record<string, number>> {
    const counts = [...this.interfaces].map(
      ([name, [index]]) => [name, this.machine.interfaces.attached(index).length] as const,
    );
    return Object.fromEntries(counts.filter(([, count]) => count > 0));
  }

  get messages(): readonly string[] {
    return this.log.map(({ message }) => message);
  }

  get lesser(): readonly string[] {
    return this.stage.degraded.map(({ subject, reason }) => `${subject}: ${reason}`);
  }

  #faulty(bpf: Bpf): Bpf {
    const fail = (call: keyof StageRig["fault"]): void => {
      const code = this.fault[call];
      if (code !== undefined) throw new BpfError(code as `E${string}`, `bpf: as the test wants it: ${code}`);
    };
    return {
      ...bpf,
      createMap: (definition) => {
        fail("createMap");
        return bpf.createMap(definition);
      },
      loadProgram: (program, place, maps) => {
        fail("loadProgram");
        return bpf.loadProgram(program, place, maps);
      },
      attachToInterface: (program, index) => {
        fail("attachToInterface");
        return bpf.attachToInterface(program, index);
      },
    };
  }
}

describe("what packets of other machines meet", () => {
  const pods = [local("10.180.0.10"), remote("10.180.1.11")];
  const both = "10.180.0.10 8080, 10.180.1.11 8080";
  const external = { externalIPs: [ip("192.0.2.1")], loadBalancerVIPs: [ip("192.0.2.2")], nodePort: 30_080 };
  const cases: readonly (readonly [string, ServicePort, readonly string[]])[] = [
    [
      "every address, and the node's in place of theirs",
      port("web", "10.96.0.1", external),
      ["* 30080", "10.96.0.1 80", "192.0.2.1 80", "192.0.2.2 80"].map((at) => `TCP ${at} masqueraded-cluster ${both}`),
    ],
    [
      "with Local policies endpoints here, which see the client from outside",
      port("web", "10.96.0.1", { ...external, externalPolicyLocal: true, internalPolicyLocal: true }),
      [
        "TCP * 30080 local 10.180.0.10 8080",
        "TCP 10.96.0.1 80 masqueraded-local 10.180.0.10 8080",
        "TCP 192.0.2.1 80 local 10.180.0.10 8080",
        "TCP 192.0.2.2 80 local 10.180.0.10 8080",
      ],
    ],
    [
      "the rules, where source ranges decide",
      port("web", "10.96.0.1", {
        loadBalancerVIPs: [ip("192.0.2.2")],
        loadBalancerSourceRanges: ["10.0.0.0/8" as ServicePort["loadBalancerSourceRanges"][number]],
      }),
      [`TCP 10.96.0.1 80 masqueraded-cluster ${both}`],
    ],
    ["the rules for SCTP", port("web", "10.96.0.1", { protocol: "SCTP" }), []],
  ];
  for (const [what, service, expected] of cases) {
    test(what, async (t) => {
      const rig = new StageRig(t);
      rig.cluster.set(service, pods);
      await rig.sync();
      assert.deepEqual(rig.stage.frontends, expected);
    });
  }

  test("the rules, where there is no endpoint, or none here with a Local policy", async (t) => {
    const rig = new StageRig(t);
    rig.cluster.set(port("none", "10.96.0.1", external), []);
    rig.cluster.set(port("elsewhere", "10.96.0.2", { internalPolicyLocal: true }), [remote("10.180.1.11")]);
    await rig.sync();
    assert.deepEqual(rig.stage.frontends, []);
  });

  test("a cluster IP is not masqueraded where pods cannot be told from others", async (t) => {
    const rig = new StageRig(t, [], { kind: "none" });
    rig.cluster.set(port("web", "10.96.0.1"), pods);
    await rig.sync();
    assert.deepEqual(rig.stage.frontends, [`TCP 10.96.0.1 80 cluster ${both}`]);
  });

  test("what changes, by the keys of what has changed", async (t) => {
    const rig = new StageRig(t);
    rig.cluster.set(port("web", "10.96.0.1"), pods);
    rig.cluster.set(port("other", "10.96.0.2"), pods);
    await rig.sync();
    rig.cluster.set(port("web", "10.96.0.3"), [remote("10.180.1.12")]);
    rig.cluster.delete(port("other", "10.96.0.2"));
    await rig.sync();
    assert.deepEqual(rig.stage.frontends, ["TCP 10.96.0.3 80 masqueraded-cluster 10.180.1.12 8080"]);
  });
});

describe("interfaces where packets meet programs", () => {
  test("are those with the node's address, and the one program goes on over maps that have grown", async (t) => {
    const rig = new StageRig(t);
    rig.cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
    await rig.sync();
    assert.deepEqual([rig.attached, rig.reported, rig.messages], [{ eth0: 1 }, 1, [LED]]);
    for (let number = 0; number < 1500; number++) {
      rig.cluster.set(port(`s${number}`, `10.97.${number >> 8}.${number & 255}`), [remote("10.180.1.1")]);
    }
    const before = rig.machine.interfaces.attached(2);
    await rig.sync();
    assert.equal(rig.stage.frontends.length, 1501);
    assert.deepEqual(rig.attached, { eth0: 1 });
    assert.notDeepEqual(rig.machine.interfaces.attached(2), before);
  });

  test("are those that are named, but none of pods and not the loopback", async (t) => {
    const named = new StageRig(t, ["eth*", "cni0", "lo"]);
    named.setInterface("eth1", 4, "10.201.0.2");
    named.setInterface("wan0", 5, "10.202.0.2");
    await named.sync();
    assert.deepEqual(named.attached, { eth0: 1, cni0: 1, eth1: 1 });
    const byPrefix = new StageRig(t, ["*"], { kind: "interface-prefix", prefix: "cni" });
    await byPrefix.sync();
    assert.deepEqual(byPrefix.attached, { eth0: 1 });
  });

  test("come and go: it is announced, and a number may be another's", async (t) => {
    const rig = new StageRig(t, ["eth*"]);
    const { asked, tell } = rig.watch(t);
    await rig.sync();
    rig.setInterface("eth1", 4, "10.201.0.2");
    tell();
    tell();
    assert.equal(asked(), 1, "a burst is one sync");
    await rig.sync();
    assert.deepEqual([rig.attached, rig.reported], [{ eth0: 1, eth1: 1 }, 2]);
    rig.removeInterface("eth1");
    tell();
    await rig.sync();
    assert.deepEqual([rig.attached, rig.reported], [{ eth0: 1 }, 1]);
    rig.removeInterface("eth0");
    rig.setInterface("eth0", 9, "10.200.0.2");
    await rig.sync(true);
    assert.deepEqual([rig.attached, rig.reported], [{ eth0: 1 }, 1]);
    rig.removeInterface("eth0");
    rig.setInterface("eth0", 9, "10.200.0.2");
    assert.deepEqual(rig.attached, {});
    await rig.sync(true);
    assert.deepEqual([rig.attached, rig.reported], [{ eth0: 1 }, 1]);
  });

  test("are left as they were when it ends, with the programs of others", async (t) => {
    const rig = new StageRig(t);
    const other = memoryBpf(rig.machine);
    await rig.sync();
    const theirs = other.loadProgram({ name: "theirs", instructions: [], notes: [], maps: [] }, "ingress");
    other.attachToInterface(theirs, 2);
    assert.equal(rig.attached.eth0, 2);
    await rig.stage.close();
    assert.deepEqual(rig.machine.interfaces.attached(2), [theirs.id]);
    assert.equal(rig.closed, 1);
  });

  test("that are none are said once", async (t) => {
    const rig = new StageRig(t, ["wan*"]);
    await rig.sync();
    await rig.sync(true);
    assert.equal(rig.messages.length, 1);
    assert.match(rig.messages[0] ?? "", /^No interface .*ebpf\.packetInterfaces/);
    assert.match(rig.lesser.join(), /^no packets are led by programs: no interface has the node's address/);
  });
});

describe("without programs at interfaces, the rules lead all packets", () => {
  for (const call of ["createMap", "loadProgram", "attachToInterface"] as const) {
    test(`when ${call} fails, which is said once and tried again with a full sync`, async (t) => {
      const rig = new StageRig(t);
      rig.fault = { [call]: "EINVAL" };
      rig.cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
      for (let round = 0; round < 3; round++) assert.deepEqual((await rig.sync(true)).failures, []);
      assert.deepEqual([rig.messages, rig.ruleSyncs, rig.attached, rig.reported], [[NOT_LED], 3, {}, 0]);
      assert.match(rig.lesser.join(), /^no packets are led by programs: .*EINVAL$/);
      rig.fault = {};
      await rig.sync();
      assert.deepEqual(rig.attached, {}, "tried with full syncs only");
      await rig.sync(true);
      assert.deepEqual([rig.attached, rig.messages], [{ eth0: 1 }, [NOT_LED, LED]]);
      assert.deepEqual(rig.lesser, []);
    });
  }

  test("the first rules load the modules that programs call", async (t) => {
    const rig = new StageRig(t);
    rig.machine.hasConntrack = false;
    await rig.sync();
    assert.deepEqual([rig.attached, rig.messages], [{ eth0: 1 }, [LED]]);
  });

  test("a module that comes later is found with the next full sync", async (t) => {
    const rig = new StageRig(t);
    rig.machine.hasConntrack = false;
    rig.rulesLoadModules = false;
    await rig.sync(true);
    assert.deepEqual([rig.attached, rig.messages], [{}, [NOT_LED]]);
    assert.match(rig.lesser.join(), /^no packets are led by programs: .*the module nf_conntrack, .*, is not loaded$/);
    rig.machine.hasConntrack = true;
    await rig.sync();
    assert.deepEqual(rig.attached, {});
    await rig.sync(true);
    assert.deepEqual([rig.attached, rig.messages, rig.lesser], [{ eth0: 1 }, [NOT_LED, LED], []]);
  });

  test("no program is attached before the first rules are there", async (t) => {
    const rig = new StageRig(t);
    rig.rulesFail = true;
    await assert.rejects(rig.sync(), /no rules/);
    assert.deepEqual(rig.attached, {});
    rig.rulesFail = false;
    await rig.sync();
    assert.deepEqual(rig.attached, { eth0: 1 });
  });

  test("it is to the proxier what the rules are", (t) => {
    const { stage } = new StageRig(t);
    assert.deepEqual([stage.mode, stage.family, stage.restMs, stage.usesServiceCIDRs], ["ebpf", "IPv4", 7, true]);
  });
});
