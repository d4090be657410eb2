/** The Windows variant: the commands as data, the handling of their results, and what is remembered. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { ip } from "../../model/testing/records.ts";
import type { IpFamily } from "../../net/ip.ts";
import { AddressLedger } from "./address-ledger.ts";
import { addAddress, DEFAULT_INTERFACE, deleteAddress, NetshAssigner, netshScript } from "./netsh-assigner.ts";
import { MemoryNetsh } from "./testing/memory-netsh.ts";
import { runNetshContract } from "./testing/netsh-contract.ts";

const ips = (...texts: readonly string[]) => new Set(texts.map(ip));
const NIC = DEFAULT_INTERFACE;

runNetshContract({ name: "in memory", host: new MemoryNetsh({ [NIC]: ["169.254.1.1"] }), interfaceName: NIC });

test("addresses are added and deleted with upstream's commands, for one host and until a restart of Windows", () => {
  const added = ["interface", "ipv4", "add", "address", `name=${NIC}`, "address=10.96.0.3", "mask=255.255.255.255"];
  assert.deepEqual(addAddress(NIC, ip("10.96.0.3")), [...added, "store=active", "skipassource=true"]);
  const deleted = ["interface", "ipv4", "delete", "address", `name=${NIC}`, "address=10.96.0.3"];
  assert.deepEqual(deleteAddress(NIC, ip("10.96.0.3")), deleted);
  const added6 = ["interface", "ipv6", "add", "address", `interface=${NIC}`, "address=fd00::3/128"];
  assert.deepEqual(addAddress(NIC, ip("fd00::3")), [...added6, "store=active", "skipassource=true"]);
  const deleted6 = ["interface", "ipv6", "delete", "address", `interface=${NIC}`, "address=fd00::3"];
  assert.deepEqual(deleteAddress(NIC, ip("fd00::3")), deleted6);
});

test("many commands are one script, with names in quotes; not where a name is beyond ASCII or has quotes", () => {
  const script = (name: string) =>
    netshScript([deleteAddress(name, ip("10.96.0.1")), deleteAddress(name, ip("fd00::1"))]);
  assert.equal(
    script(NIC),
    `interface ipv4 delete address name="${NIC}" address=10.96.0.1\r\n` +
      `interface ipv6 delete address interface="${NIC}" address=fd00::1\r\n`,
  );
  assert.equal(script("Kupfer-Schnittstelle"), script("Kupfer-Schnittstelle")?.replaceAll('"', ""));
  for (const name of ["Übergang", 'a "b"', "a\nb"]) assert.equal(script(name), undefined, name);
});

interface Rig {
  readonly host: MemoryNetsh;
  readonly clock: FakeClock;
  readonly errors: string[];
  readonly file: string;
  /** Like a start of the program. */
  start(family?: IpFamily, ledger?: AddressLedger): NetshAssigner;
  readonly ledger: () => AddressLedger;
}

function rigFor(t: TestContext): Rig {
  const folder = mkdtempSync(join(tmpdir(), "kpts-ledger-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const clock = new FakeClock();
  const errors: string[] = [];
  const file = join(folder, "kube-proxy", "service-addresses.json");
  const log: Logger = { ...silentLogger, error: (message, error) => void errors.push(`${message}: ${String(error)}`) };
  const host = new MemoryNetsh({ [NIC]: ["169.254.1.1"], Ethernet: ["192.168.1.5"] }, () => clock.monotonicMs());
  const ledger = () => new AddressLedger(file, log);
  const start = (family: IpFamily = "IPv4", known = ledger()) =>
    new NetshAssigner({ family, interfaceName: NIC, host, ledger: known, clock, log });
  return { host, clock, errors, file, start, ledger };
}

const { signal } = new AbortController();

test("what another program takes away while others are added is missed, and added again", async (t) => {
  const { host, start } = rigFor(t);
  const assigner = start();
  await assigner.update(ips("10.96.0.1"), signal);
  const netsh = host.netsh.bind(host);
  host.netsh = async (words) => {
    host.lose(NIC, "10.96.0.1");
    return await netsh(words);
  };
  await assigner.update(ips("10.96.0.1", "10.96.0.3"), signal);
  host.netsh = netsh;
  assert.equal(assigner.isIntact(), false);
  await assigner.update(ips("10.96.0.1", "10.96.0.3"), signal);
  assert.deepEqual([...host.on(NIC)].sort(), ["10.96.0.1", "10.96.0.3", "169.254.1.1"]);
  assert.equal(assigner.isIntact(), true);
});

test("addresses come and go with who wants them; what the host had before is neither added nor ever deleted", async (t) => {
  const { host, start } = rigFor(t);
  const assigner = start();
  const first = await assigner.update(ips("10.96.0.1", "10.96.0.2", "192.168.1.5"), signal);
  assert.deepEqual(first, { refused: new Map(), added: ips("10.96.0.1", "10.96.0.2") });
  assert.deepEqual((await assigner.update(ips("10.96.0.2"), signal)).added, new Set());
  assert.deepEqual(host.commands, ["add 10.96.0.1", "add 10.96.0.2", "delete 10.96.0.1"]);
  await assigner.update(ips(), signal);
  assert.deepEqual([host.on(NIC), host.on("Ethernet")], [["169.254.1.1"], ["192.168.1.5"]]);
});

test("many addresses take one process; those that it could not add are tried alone, so that the reason is known", async (t) => {
  const { host, start } = rigFor(t);
  host.answers.set("add 10.96.0.2", { status: 1, stdout: "Not enough\r\nstorage.\r\n", stderr: "" });
  const { refused, added } = await start().update(ips("10.96.0.1", "10.96.0.2", "10.96.0.3"), signal);
  assert.deepEqual(host.commands, ["script", "add 10.96.0.1", "add 10.96.0.2", "add 10.96.0.3", "add 10.96.0.2"]);
  assert.deepEqual(added, ips("10.96.0.1", "10.96.0.3"));
  assert.match(
    refused.get(ip("10.96.0.2")) ?? "",
    /^netsh .*address=10\.96\.0\.2 .*: exit status 1: Not enough storage\.$/,
  );
});

test("a command that ends well and does nothing is a failure", async (t) => {
  const { host, start } = rigFor(t);
  host.answers.set("add 10.96.0.1", { status: 0, stdout: "", stderr: "" });
  const { refused, added } = await start().update(ips("10.96.0.1"), signal);
  assert.match(refused.get(ip("10.96.0.1")) ?? "", /it succeeded but changed nothing$/);
  assert.equal(added.size, 0);
});

test("where the interface is missing, the failure names those that there are", async (t) => {
  const { host, start } = rigFor(t);
  host.lose(NIC, "169.254.1.1");
  host.answers.set("add 10.96.0.1", { status: 1, stdout: "The parameter is incorrect.", stderr: "" });
  const { refused } = await start().update(ips("10.96.0.1"), signal);
  assert.match(
    refused.get(ip("10.96.0.1")) ?? "",
    /no interface "vEthernet \(HNS Internal NIC\)" .* INTERFACE_TO_ADD_SERVICE_IP to one of: Ethernet$/,
  );
});

test("an address that can be used late is waited for, one that never can is given up and the others work", async (t) => {
  const { host, clock, start } = rigFor(t);
  host.unusableUntilMs.set("10.96.0.1", 3000);
  host.unusableUntilMs.set("10.96.0.2", Number.POSITIVE_INFINITY);
  const updating = start().update(ips("10.96.0.1", "10.96.0.2"), signal);
  await clock.advance(11_000);
  const { refused } = await updating;
  assert.deepEqual([...refused.keys()], ["10.96.0.2"]);
  assert.match(refused.get(ip("10.96.0.2")) ?? "", /could not be used within 10 s of being added to interface/);
});

test("what a killed run has left is known to the next: kept where it is wanted, otherwise deleted", async (t) => {
  const { host, start, file } = rigFor(t);
  await start().update(ips("10.96.0.1", "10.96.0.2"), signal);
  host.commands.length = 0;
  const again = start();
  assert.deepEqual(await again.update(ips("10.96.0.1"), signal), { refused: new Map(), added: new Set() });
  assert.deepEqual(host.commands, ["delete 10.96.0.2"]);
  assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), { "10.96.0.1": NIC });
  await again.update(ips(), signal);
  assert.throws(() => readFileSync(file), /ENOENT/);
});

test("after a restart of Windows, which removes the addresses, nothing is deleted", async (t) => {
  const { host, start } = rigFor(t);
  await start().update(ips("10.96.0.1"), signal);
  host.lose(NIC, "10.96.0.1");
  host.commands.length = 0;
  const again = start();
  await again.update(ips(), signal);
  assert.deepEqual(host.commands, []);
});

test("an address that another program took away shows, and is had again", async (t) => {
  const { host, start } = rigFor(t);
  const assigner = start();
  await assigner.update(ips("10.96.0.1"), signal);
  assert.equal(assigner.isIntact(), true);
  host.lose(NIC, "10.96.0.1");
  assert.equal(assigner.isIntact(), false);
  assert.deepEqual((await assigner.update(ips("10.96.0.1"), signal)).added, ips("10.96.0.1"));
  assert.equal(assigner.isIntact(), true);
});

test("the families share the list, and neither gives back what is the other's", async (t) => {
  const { host, start, ledger } = rigFor(t);
  const shared = ledger();
  const [v4, v6] = [start("IPv4", shared), start("IPv6", shared)];
  await v4.update(ips("10.96.0.1"), signal);
  await v6.update(ips("fd00::1"), signal);
  await v4.update(ips(), signal);
  assert.deepEqual(host.on(NIC), ["169.254.1.1", "fd00::1"]);
});

test("what cannot be given back is told, stays in the list, and is tried again", async (t) => {
  const { host, start, errors } = rigFor(t);
  const assigner = start();
  await assigner.update(ips("10.96.0.1"), signal);
  host.answers.set("delete 10.96.0.1", { status: 1, stdout: "Access is denied.", stderr: "" });
  await assigner.update(ips(), signal);
  assert.match(errors.join(), /Failed to remove a service address: .*Access is denied/);
  host.answers.clear();
  await assigner.update(ips(), signal);
  assert.deepEqual(host.on(NIC), ["169.254.1.1"]);
});

test("a list that cannot be read is told of, and does no harm", async (t) => {
  const { host, start, errors, file } = rigFor(t);
  await start().update(ips("10.96.0.1"), signal);
  for (const content of ["{", "[]", '{"x":"y"}', '{"10.96.0.1":3}']) {
    errors.length = 0;
    writeFileSync(file, content);
    const assigner = start();
    assert.match(errors.join(), /list of service addresses cannot be read/, content);
    await assigner.update(ips("10.96.0.9"), signal);
    await assigner.update(ips(), signal);
    assert.deepEqual(host.on(NIC), ["169.254.1.1", "10.96.0.1"]);
  }
});
