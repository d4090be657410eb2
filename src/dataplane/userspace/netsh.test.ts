/** The Windows shape: the commands as data, and what is done with their outcome. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ExecResult } from "../../kernel/process.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { IpAddress } from "../../net/ip.ts";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { NetshAssigner } from "./netsh-assigner.ts";
import { DEFAULT_INTERFACE, planAddresses, showAddresses, shownAddresses } from "./plan-netsh.ts";

const ips = (...texts: readonly string[]) => new Set(texts as readonly IpAddress[]);
const NAME = `name=${DEFAULT_INTERFACE}`;

test("addresses are added, deleted and listed with upstream's commands", () => {
  const plan = planAddresses({
    interfaceName: DEFAULT_INTERFACE,
    present: ips("192.168.1.5", "10.96.0.1"),
    assigned: ips("10.96.0.1", "10.96.0.2"),
    wanted: ips("10.96.0.1", "10.96.0.3"),
  });
  const args = (map: typeof plan.add) => [...map.values()].map((command) => [command.file, ...command.args]);
  assert.deepEqual(args(plan.add), [["netsh", "interface", "ipv4", "add", "address", NAME, "address=10.96.0.3"]]);
  assert.deepEqual(args(plan.remove), [["netsh", "interface", "ipv4", "delete", "address", NAME, "address=10.96.0.2"]]);
  assert.deepEqual(showAddresses("eth0").args, ["interface", "ipv4", "show", "address", "name=eth0"]);
});

test("an address that the host had before is neither added nor ever deleted", () => {
  const facts = { interfaceName: "x", present: ips("192.168.1.5"), assigned: ips() };
  assert.equal(planAddresses({ ...facts, wanted: ips("192.168.1.5") }).add.size, 0);
  assert.equal(planAddresses({ ...facts, wanted: ips() }).remove.size, 0);
});

test("IPv6 addresses are named as unsupported", () => {
  const plan = planAddresses({ interfaceName: "x", present: ips(), assigned: ips(), wanted: ips("fd00::1") });
  assert.deepEqual([plan.unsupported, plan.add.size], [["fd00::1"], 0]);
});

test("addresses are read from what netsh shows", () => {
  const output = [
    'Configuration for interface "vEthernet (HNS Internal NIC)"',
    "    DHCP enabled:                         No",
    "    IP Address:                           10.96.0.1",
    "    Subnet Prefix:                        10.96.0.0/16 (mask 255.255.0.0)",
    "    IP Address:                           10.96.0.2\r",
    "    InterfaceMetric:                      15",
  ].join("\n");
  assert.deepEqual(shownAddresses(output), ips("10.96.0.1", "10.96.0.2"));
});

/** A Windows host as far as netsh goes; `delayed` addresses show late, or never. */
class FakeHost {
  readonly addresses = new Set<string>();
  readonly commands: string[] = [];
  readonly showsAtMs = new Map<string, number>();
  readonly clock = new FakeClock();
  refuse: string | undefined;

  readonly exec = async (_file: string, args: readonly string[]): Promise<ExecResult> => {
    const [, , verb, , , address = ""] = args;
    const ip = address.replace("address=", "");
    if (verb === "show") {
      const shown = [...this.addresses].filter((one) => (this.showsAtMs.get(one) ?? 0) <= this.clock.monotonicMs());
      return { status: 0, stdout: shown.map((one) => `    IP Address:   ${one}\n`).join(""), stderr: "" };
    }
    this.commands.push(`${verb} ${ip}`);
    if (ip === this.refuse) return { status: 1, stdout: "The object already exists.\n", stderr: "" };
    if (verb === "add") this.addresses.add(ip);
    else this.addresses.delete(ip);
    return { status: 0, stdout: "", stderr: "" };
  };

  assigner(): NetshAssigner {
    const { exec, clock } = this;
    const hostAddresses = async () => ["192.168.1.5" as IpAddress];
    return new NetshAssigner({ interfaceName: DEFAULT_INTERFACE, hostAddresses, exec, clock, log: silentLogger });
  }
}

test("addresses come and go with who wants them", async () => {
  const host = new FakeHost();
  const assigner = host.assigner();
  const { signal } = new AbortController();
  assert.deepEqual(await assigner.update(ips("10.96.0.1", "10.96.0.2", "192.168.1.5"), signal), new Map());
  assert.deepEqual(await assigner.update(ips("10.96.0.2"), signal), new Map());
  assert.deepEqual(host.commands, ["add 10.96.0.1", "add 10.96.0.2", "delete 10.96.0.1"]);
  await assigner.update(ips(), signal);
  assert.deepEqual([...host.addresses], []);
});

test("an address that appears late is waited for, one that never does is given up", async () => {
  const host = new FakeHost();
  host.showsAtMs.set("10.96.0.1", 1200);
  host.showsAtMs.set("10.96.0.2", Number.POSITIVE_INFINITY);
  const updating = host.assigner().update(ips("10.96.0.1", "10.96.0.2"), new AbortController().signal);
  await host.clock.advance(11_000);
  const refused = await updating;
  assert.deepEqual([...refused.keys()], ["10.96.0.2"]);
  assert.match(refused.get("10.96.0.2" as IpAddress) ?? "", /did not appear on interface .* within 10 s/);
});

test("what netsh refuses is told in its words and keeps no other service", async () => {
  const host = new FakeHost();
  host.refuse = "10.96.0.1";
  const refused = await host.assigner().update(ips("10.96.0.1", "10.96.0.2"), new AbortController().signal);
  assert.match(refused.get("10.96.0.1" as IpAddress) ?? "", /exit status 1: The object already exists/);
  assert.deepEqual([...host.addresses], ["10.96.0.2"]);
});
