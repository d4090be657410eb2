/** The contract of every {@link NetshHost}: the in-memory one, and the system's, which is tested under Wine. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../../../testkit/support/patience.ts";
import { ip } from "../../../model/testing/records.ts";
import { addAddress, deleteAddress, hostAddressesOf, type NetshHost, netshScript } from "../netsh-assigner.ts";

export interface NetshContractHost {
  readonly name: string;
  readonly host: NetshHost;
  /** An existing interface without the addresses 10.96.7.x and fd00:10:96::7xx. */
  readonly interfaceName: string;
}

export function runNetshContract({ name, host, interfaceName }: NetshContractHost): void {
  const { signal } = new AbortController();
  const present = () => hostAddressesOf(host.interfaces());

  for (const text of ["10.96.7.1", "fd00:10:96::701"]) {
    test(`netsh ${name}: ${text} comes and goes, and sockets can be bound to it in between`, async () => {
      const address = ip(text);
      assert.equal(await host.canBind(address), false);
      assert.equal((await host.netsh(addAddress(interfaceName, address), signal)).status, 0);
      assert.ok(present().has(address));
      // The system may first check for duplicates on the network.
      await until("the address to be usable", () => host.canBind(address));
      assert.equal((await host.netsh(deleteAddress(interfaceName, address), signal)).status, 0);
      assert.equal(present().has(address), false);
      assert.equal(await host.canBind(address), false);
    });
  }

  test(`netsh ${name}: an address is refused twice, and where there is no such interface; the host says why`, async () => {
    const address = ip("10.96.7.2");
    assert.equal((await host.netsh(addAddress(interfaceName, address), signal)).status, 0);
    const again = await host.netsh(addAddress(interfaceName, address), signal);
    assert.deepEqual([again.status, again.stdout.trim()], [1, "The object already exists."]);
    const elsewhere = await host.netsh(addAddress("no such (interface)", ip("10.96.7.3")), signal);
    assert.equal(elsewhere.status, 1);
    assert.match(elsewhere.stdout, /syntax is incorrect/);
    assert.equal((await host.netsh(deleteAddress(interfaceName, address), signal)).status, 0);
    const gone = await host.netsh(deleteAddress(interfaceName, address), signal);
    assert.deepEqual([gone.status, gone.stdout.trim()], [1, "Element not found."]);
  });

  test(`netsh ${name}: a script does all its lines, also after one that fails`, async () => {
    const addresses = ["10.96.7.4", "10.96.7.4", "10.96.7.5", "fd00:10:96::704"].map(ip);
    const script = (plan: typeof addAddress) =>
      netshScript(addresses.map((address) => plan(interfaceName, address))) ?? "";
    await host.netshScript(script(addAddress), signal);
    for (const address of addresses) assert.ok(present().has(address), address);
    await host.netshScript(script(deleteAddress), signal);
    for (const address of addresses) assert.equal(present().has(address), false, address);
  });
}
