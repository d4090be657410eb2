/** What the start waits for and what it rejects, with clear messages where people look. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { HR, MemoryHcn } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { Hcn } from "./hcn/hcn.ts";
import {
  awaitHost,
  findSourceVip,
  probe,
  requireFeatures,
  type SourceVipSources,
  singleFamilyReason,
} from "./start.ts";
import { NETWORK, newHost } from "./testing/kernelspace-rig.ts";

const NO_VIP: SourceVipSources = { config: { sourceVip: "" }, readFile: () => undefined };

function waiting(host: MemoryHcn) {
  const clock = new FakeClock();
  const log: LogLine[] = [];
  const shown: (string | undefined)[] = [];
  const stop = new AbortController();
  const onWaiting = (reason: string | undefined): void => void shown.push(reason);
  const wait = { log: recordingLogger(log), clock, signal: stop.signal, onWaiting };
  return { clock, log, shown, stop, found: awaitHost(new Hcn(host), NETWORK, NO_VIP, wait) };
}

describe("the start waits", () => {
  test("for a network of that name: said once, shown, and looked for every second", async () => {
    const host = new MemoryHcn();
    host.addNetwork("nat", "NAT");
    const { clock, log, shown, found } = waiting(host);
    await clock.advance(10_000);
    const words = /^HNS has no network "cbr0": check winkernel\.networkName .*CNI plugin has made it$/;
    assert.equal(shown.length, 1);
    assert.match(shown[0] ?? "", words);
    assert.deepEqual(
      log.map(({ level, message }) => [level, message]),
      [["error", "Waiting for HNS and the network of the pods"]],
    );
    const id = host.addNetwork(NETWORK, "L2Bridge");
    await clock.advance(1_000);
    assert.equal((await found).network.id, id);
    assert.deepEqual(shown.slice(1), [undefined]);
  });

  test("for an HNS that is down, and says so apart from a missing network", async () => {
    const host = new MemoryHcn();
    const start = host.stop();
    const { clock, shown, found } = waiting(host);
    await clock.advance(5_000);
    assert.match(shown[0] ?? "", /The HNS service is stopping/);
    start();
    await clock.advance(1_000);
    assert.match(shown[1] ?? "", /HNS has no network/);
    host.addNetwork(NETWORK, "L2Bridge");
    await clock.advance(1_000);
    await found;
    assert.equal(shown.at(-1), undefined);
  });

  test("not at all where everything is there, and writes nothing (windows-practice.md §9.1)", async () => {
    const host = newHost();
    const { shown, log, found } = waiting(host);
    await found;
    assert.deepEqual([shown, log, host.takeWrites()], [[], [], []]);
  });

  test("until the program is told to stop", async () => {
    const { clock, stop, found } = waiting(new MemoryHcn());
    await clock.settle();
    stop.abort(new Error("SIGINT"));
    await assert.rejects(found, /SIGINT/);
    assert.equal(clock.timerCount, 0);
  });
});

describe("the start ends", () => {
  test("where this process may not call HNS", async () => {
    const host = newHost();
    host.refuse(() => HR.accessDenied);
    const { shown, found } = waiting(host);
    await assert.rejects(found, /HNS denies access to this process: .*Access is denied: run as Administrator/);
    assert.deepEqual(shown, []);
  });

  test("where the first look is allowed, and the second is not", async () => {
    const host = newHost();
    host.refuse(({ kind }) => (kind === "Network" ? HR.accessDenied : undefined));
    await assert.rejects(waiting(host).found, /Access is denied/);
  });

  test("on a Windows without load balancers, or without the second version of the interface", async () => {
    const old = newHost("L2Bridge", { version: { major: 9, minor: 1 } });
    await assert.rejects(probe(new Hcn(old)), /Windows HNS Api V2 required.*HNS is 9\.1, and 9\.2 is needed/);
    const none = newHost();
    none.refuse(({ verb }) => (verb === "Call" ? HR.notImplemented : undefined));
    await assert.rejects(probe(new Hcn(none)), /Windows kernel is not compatible for Kernel mode: .*Not implemented/);
  });
});

for (const type of ["L2Bridge", "Overlay"] as const) {
  for (const lacking of ["dsr", "remoteSubnet", undefined] as const) {
    for (const enableDSR of [true, false]) {
      test(`a Windows that lacks ${lacking ?? "nothing"} on an ${type}, with enableDSR ${enableDSR}`, async () => {
        const hcn = new Hcn(newHost(type));
        const network = (await hcn.named("Network", NETWORK)) ?? assert.fail();
        const features = { ...(await probe(hcn)), ...(lacking && { [lacking]: false }) };
        const start = (): void => requireFeatures(features, network, { enableDSR });
        if (lacking === "dsr" && enableDSR)
          assert.throws(start, /Direct Server Return \(DSR\): set winkernel.enableDSR/);
        else if (lacking === "remoteSubnet" && type === "Overlay") assert.throws(start, /feature Remote Subnet$/);
        else start();
      });
    }
  }
}

test("two families run on an L2Bridge of a Windows that knows both; elsewhere one does, and that is told (kubernetes #136241)", async () => {
  const reasonOn = async (type: "L2Bridge" | "Overlay", minor: number): Promise<string | undefined> => {
    const hcn = new Hcn(newHost(type, { version: { major: 11, minor } }));
    const network = (await hcn.named("Network", NETWORK)) ?? assert.fail();
    return singleFamilyReason({ features: await probe(hcn), network });
  };
  assert.equal(await reasonOn("L2Bridge", 10), undefined);
  assert.match((await reasonOn("Overlay", 10)) ?? "", /^Winoverlay does not support dual-stack/);
  assert.match((await reasonOn("L2Bridge", 9)) ?? "", /^This version of Windows does not support dual-stack/);
});

describe("the source VIP of an overlay", () => {
  const find = async (add: (host: MemoryHcn) => void, sources: Partial<SourceVipSources> = {}) => {
    const host = newHost("Overlay");
    add(host);
    const hcn = new Hcn(host);
    const network = await hcn.named("Network", NETWORK);
    assert.ok(network !== undefined);
    return await findSourceVip(hcn, network, { ...NO_VIP, ...sources });
  };
  const reserved = (host: MemoryHcn): void => void host.addEndpoint({ name: "sourcevip", addresses: ["192.168.1.9"] });

  test("is the configured one, also where another is reserved", async () => {
    assert.equal(await find(reserved, { config: { sourceVip: "192.168.1.2" } }), "192.168.1.2");
  });

  for (const [what, text] of [
    ["of old IPAM plugins", '{"cniVersion":"0.2.0","ip4":{"ip":"192.168.1.5/24","gateway":"192.168.1.1"},"dns":{}}'],
    ["of newer ones", '{"cniVersion":"1.0.0","ips":[{"address":"192.168.1.5/24"}]}'],
  ] as const) {
    test(`is that of flannel's file in the format ${what}`, async () => {
      assert.equal(await find(reserved, { readFile: () => text }), "192.168.1.5");
    });
  }

  for (const text of ["", "{", "[]", '{"ip4":null}', '{"ip4":{"ip":"nonsense"}}']) {
    test(`is not taken from a file that has none: ${JSON.stringify(text)}`, async () => {
      assert.equal(await find(reserved, { readFile: () => text }), "192.168.1.9");
    });
  }

  for (const name of ["sourcevip", "SourceVip", "Calico_ep"]) {
    test(`is that of the endpoint ${name} where none is configured`, async () => {
      const add = (host: MemoryHcn): void => {
        host.addEndpoint({ name: "Ethernet", addresses: ["192.168.1.8"] });
        host.addEndpoint({ name, addresses: ["fd00::9", "192.168.1.9"] });
      };
      assert.equal(await find(add), "192.168.1.9");
    });
  }

  test("is not taken from another network, a remote endpoint or another family", async () => {
    const add = (host: MemoryHcn): void => {
      const network = host.addNetwork("other", "Overlay");
      host.addEndpoint({ name: "sourcevip", network, addresses: ["192.168.1.7"] });
      host.addEndpoint({ name: "sourcevip", addresses: ["192.168.1.8"], isRemote: true });
      host.addEndpoint({ name: "sourcevip", addresses: ["fd00::9"] });
    };
    assert.equal(await find(add), undefined);
  });

  test("is waited for: Calico makes its endpoint after the network", async () => {
    const host = newHost("Overlay");
    const { clock, shown, found } = waiting(host);
    await clock.advance(5_000);
    assert.equal(shown.length, 1);
    assert.match(shown[0] ?? "", /^source-vip flag not set: the overlay "cbr0" needs .*--source-vip.*Calico_ep$/);
    host.addEndpoint({ name: "Calico_ep", addresses: ["192.168.1.9"] });
    await clock.advance(1_000);
    await found;
    assert.equal(shown.at(-1), undefined);
  });
});
