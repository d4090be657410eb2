/** The contract of {@link Links}, for the kernel's (in the test's own namespace) and the one in memory. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { until } from "../../../../testkit/support/patience.ts";
import type { IpAddress, IpFamily } from "../../../net/ip.ts";
import type { Links } from "../links.ts";

/** Changes that another program makes in the namespace. */
export interface ForeignLinks {
  /** Adds a device that is not a dummy, up. */
  readonly addLink: (name: string) => Promise<void>;
  readonly deleteLink: (name: string) => Promise<void>;
  readonly addAddress: (link: string, address: IpAddress, prefixLength: number) => Promise<void>;
  readonly removeAddress: (link: string, address: IpAddress) => Promise<void>;
  /** Removes the local route to an address. */
  readonly removeRoute: (link: string, address: IpAddress) => Promise<void>;
}

/** A namespace with a loopback device. */
export interface LinksRig {
  readonly links: Links;
  readonly foreign: ForeignLinks;
}

export interface LinksSubject {
  readonly name: string;
  readonly open: (t: TestContext) => Promise<LinksRig>;
  /** Why it cannot be tested here; `false` if it can. */
  readonly skip: string | false;
}

const DEVICE = "kube-ipvs0";

const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below
const [A, B, C] = [ip("10.96.0.1"), ip("10.96.0.2"), ip("10.96.0.3")];
const A6 = ip("fd00:10:96::1");

async function on(links: Links, link: string, family: IpFamily = "IPv4"): Promise<IpAddress[]> {
  const all = await links.addresses(family);
  return all.flatMap((found) => (found.link === link ? [found.address] : [])).sort();
}

export function linksContract({ name, open, skip }: LinksSubject): void {
  describe(`devices: ${name}`, { skip }, () => {
    deviceTests(open);
    addressTests(open);
    watchTests(open);
  });
}

type Open = LinksSubject["open"];

function deviceTests(open: Open): void {
  test("a dummy device is created once, down, and deleted", async (t) => {
    const { links } = await open(t);
    assert.equal(await links.link(DEVICE), undefined);
    await links.ensureDummy(DEVICE);
    const created = await links.link(DEVICE);
    assert.deepEqual(created, { name: DEVICE, index: created?.index, kind: "dummy", isUp: false });
    await links.ensureDummy(DEVICE);
    assert.deepEqual(await links.link(DEVICE), created);
    await links.deleteDummy(DEVICE);
    assert.equal(await links.link(DEVICE), undefined);
    await links.deleteDummy(DEVICE);
  });

  test("devices of other kinds are described, and neither taken for a dummy nor deleted", async (t) => {
    const { links, foreign } = await open(t);
    assert.equal((await links.link("lo"))?.kind, undefined);
    await foreign.addLink(DEVICE);
    const { kind, isUp } = (await links.link(DEVICE)) ?? {};
    assert.ok(kind !== undefined && kind !== "dummy");
    assert.equal(isUp, true);
    await assert.rejects(links.ensureDummy(DEVICE), new RegExp(`${DEVICE} is a ${kind} device.*delete or rename`));
    await assert.rejects(links.deleteDummy(DEVICE), new RegExp(`${DEVICE} is a ${kind} device`));
    await assert.rejects(links.deleteDummy("lo"), /lo is no virtual device/);
    assert.notEqual(await links.link(DEVICE), undefined);
  });
}

function addressTests(open: Open): void {
  test("addresses of both families are added as whole addresses, listed and removed", async (t) => {
    const { links } = await open(t);
    await links.ensureDummy(DEVICE);
    assert.deepEqual(await links.addAddresses(DEVICE, [A, B, A6]), []);
    assert.deepEqual(
      (await links.addresses("IPv4")).filter(({ link }) => link === DEVICE),
      [A, B].map((address) => ({ address, prefixLength: 32, link: DEVICE })),
    );
    assert.deepEqual(
      (await links.addresses("IPv6")).filter(({ link }) => link === DEVICE),
      [{ address: A6, prefixLength: 128, link: DEVICE }],
    );
    assert.deepEqual(await links.removeAddresses(DEVICE, [A, A6]), []);
    assert.deepEqual(await on(links, DEVICE), [B]);
    assert.deepEqual(await on(links, DEVICE, "IPv6"), []);
  });

  test("all devices' addresses are listed, those of loopback too", async (t) => {
    const { links, foreign } = await open(t);
    await foreign.addLink("other");
    await foreign.addAddress("other", C, 24);
    const found = await links.addresses("IPv4");
    assert.ok(found.some(({ address, link }) => address === "127.0.0.1" && link === "lo"));
    assert.deepEqual(
      found.filter(({ link }) => link === "other"),
      [{ address: C, prefixLength: 24, link: "other" }],
    );
    assert.ok((await links.addresses("IPv6")).some(({ address, link }) => address === "::1" && link === "lo"));
  });

  test("adding what is there and removing what is not are no failures", async (t) => {
    const { links } = await open(t);
    await links.ensureDummy(DEVICE);
    await links.addAddresses(DEVICE, [A, A6]);
    assert.deepEqual(await links.addAddresses(DEVICE, [A, B, A6, A]), []);
    assert.deepEqual(await links.removeAddresses(DEVICE, [C, B, ip("fd00::9")]), []);
    assert.deepEqual(await on(links, DEVICE), [A]);
    assert.deepEqual(await links.addAddresses(DEVICE, []), []);
    assert.deepEqual(await links.removeAddresses(DEVICE, []), []);
  });

  test("an address that another device has can be bound, and is removed from the named device only", async (t) => {
    const { links, foreign } = await open(t);
    await foreign.addLink("other");
    await foreign.addAddress("other", A, 32);
    await links.ensureDummy(DEVICE);
    assert.deepEqual(await links.addAddresses(DEVICE, [A]), []);
    assert.deepEqual(await links.removeAddresses(DEVICE, [A]), []);
    assert.deepEqual(await on(links, "other"), [A]);
    assert.deepEqual(await on(links, DEVICE), []);
  });

  test("an address with another prefix length goes when that is given, and only then", async (t) => {
    const { links, foreign } = await open(t);
    await foreign.addLink("other");
    for (const prefixLength of [32, 24]) await foreign.addAddress("other", A, prefixLength);
    await foreign.addAddress("other", B, 24);
    assert.deepEqual(await links.removeAddresses("other", [B]), []);
    assert.deepEqual(await on(links, "other"), [A, A, B]);
    const asked = [A, B].map((address) => ({ address, prefixLength: 24 }));
    assert.deepEqual(await links.removeAddresses("other", asked), []);
    const left = (await links.addresses("IPv4")).filter(({ link }) => link === "other");
    assert.deepEqual(left, [{ address: A, prefixLength: 32, link: "other" }]);
  });

  test("an IPv6 address is on a device once, of one prefix length or another", async (t) => {
    const { links, foreign } = await open(t);
    await foreign.addLink("other");
    await foreign.addAddress("other", A6, 64);
    assert.deepEqual(await links.addAddresses("other", [A6]), []);
    const found = async () => (await links.addresses("IPv6")).filter(({ address }) => address === A6);
    assert.deepEqual(await found(), [{ address: A6, prefixLength: 64, link: "other" }]);
    await links.removeAddresses("other", [{ address: A6, prefixLength: 64 }]);
    assert.deepEqual(await found(), []);
  });

  test("a missing device makes every change fail, by name", async (t) => {
    const { links } = await open(t);
    const failures = await links.addAddresses("gone", [A, B]);
    assert.deepEqual(
      failures.map(({ address, code }) => [address, code]),
      [
        [A, "ENODEV"],
        [B, "ENODEV"],
      ],
    );
    assert.equal(failures[0]?.message, "cannot add 10.96.0.1 to gone: there is no such device (ENODEV)");
    const [failure] = await links.removeAddresses("gone", [A]);
    assert.equal(failure?.message, "cannot remove 10.96.0.1 from gone: there is no such device (ENODEV)");
  });

  test("thousands of addresses", async (t) => {
    const { links } = await open(t);
    await links.ensureDummy(DEVICE);
    const many = Array.from({ length: 2000 }, (_, n) => ip(`10.97.${n >> 8}.${n & 255}`));
    assert.deepEqual(await links.addAddresses(DEVICE, many), []);
    assert.deepEqual(await on(links, DEVICE), [...many].sort());
    assert.deepEqual(await links.removeAddresses(DEVICE, many.slice(1)), []);
    assert.deepEqual(await on(links, DEVICE), ["10.97.0.0"]);
  });

  test("an address comes with a route to the node itself, and is not the node's without it", async (t) => {
    const { links, foreign } = await open(t);
    await links.ensureDummy(DEVICE);
    await links.addAddresses(DEVICE, [A, B, A6]);
    const routes = async (family: IpFamily) =>
      (await links.localRoutes(family))
        .filter(({ link }) => link === DEVICE)
        .sort((a, b) => (a.address < b.address ? -1 : 1));
    const routeTo = (address: IpAddress, prefixLength: number) => ({ address, prefixLength, link: DEVICE });
    // The kernel adds routes of IPv6 addresses from a work queue (addrconf_dad_work), after it has answered.
    const routeOfA6 = async () => {
      await until("the route of an IPv6 address", async () => (await routes("IPv6")).length > 0);
      assert.deepEqual(await routes("IPv6"), [routeTo(A6, 128)]);
    };
    assert.deepEqual(await routes("IPv4"), [routeTo(A, 32), routeTo(B, 32)]);
    await routeOfA6();
    for (const address of [A, A6]) await foreign.removeRoute(DEVICE, address);
    assert.deepEqual(await routes("IPv4"), [routeTo(B, 32)]);
    assert.deepEqual(await routes("IPv6"), []);
    assert.deepEqual(await on(links, DEVICE), [A, B], "the address stays");
    await links.addAddresses(DEVICE, [A, A6]);
    assert.deepEqual(await routes("IPv4"), [routeTo(B, 32)], "adding an address that is there brings no route");
    await links.removeAddresses(DEVICE, [A, A6]);
    await links.addAddresses(DEVICE, [A, A6]);
    assert.deepEqual(await routes("IPv4"), [routeTo(A, 32), routeTo(B, 32)]);
    await routeOfA6();
    await links.removeAddresses(DEVICE, [A, B]);
    assert.deepEqual(await routes("IPv4"), []);
  });

  test("routes to elsewhere are not listed", async (t) => {
    const { links, foreign } = await open(t);
    await foreign.addLink("other");
    await foreign.addAddress("other", C, 24);
    const found = await links.localRoutes("IPv4");
    assert.deepEqual(
      found.filter(({ link }) => link === "other"),
      [{ address: C, prefixLength: 32, link: "other" }],
    );
    await assert.rejects(links.localRoutes("IPv4", AbortSignal.abort(new Error("stop"))), /stop/);
  });

  test("an aborted signal stops the listing", async (t) => {
    const { links } = await open(t);
    await assert.rejects(links.addresses("IPv4", AbortSignal.abort(new Error("stop"))), /stop/);
  });
}

function watchTests(open: Open): void {
  test("what others do to devices and addresses is announced, until the signal aborts", async (t) => {
    const { links, foreign } = await open(t);
    await links.ensureDummy(DEVICE);
    await links.addAddresses(DEVICE, [A]);
    const stop = new AbortController();
    const seen: (string | undefined)[] = [];
    const watching = links.watch((link) => seen.push(link), stop.signal);
    t.after(() => stop.abort());
    const announced = async (link: string, action: () => Promise<void>): Promise<void> => {
      seen.length = 0;
      await action();
      await until("the link to be told", () => seen.includes(link) || seen.includes(undefined));
    };
    await announced("other", () => foreign.addLink("other"));
    await announced("other", () => foreign.addAddress("other", B, 32));
    await announced("other", () => foreign.addAddress("other", A6, 128));
    await announced(DEVICE, () => foreign.removeAddress(DEVICE, A));
    await announced(DEVICE, () => foreign.deleteLink(DEVICE));
    stop.abort();
    await watching;
    seen.length = 0;
    await foreign.deleteLink("other");
    assert.deepEqual(seen, []);
  });

  test("IPv4 addresses that it changes itself are not announced", async (t) => {
    const { links, foreign } = await open(t);
    await links.ensureDummy(DEVICE);
    await foreign.addLink("other");
    const stop = new AbortController();
    const seen: (string | undefined)[] = [];
    const watching = links.watch((link) => seen.push(link), stop.signal);
    t.after(() => stop.abort());
    await links.addAddresses(DEVICE, [A, B]);
    await links.removeAddresses(DEVICE, [B]);
    await foreign.addAddress("other", C, 32);
    await until("something to be told", () => seen.length > 0);
    assert.ok(!seen.includes(DEVICE), `announced: ${seen.join(" ")}`);
    stop.abort();
    await watching;
  });
}
