import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { describe, test } from "node:test";
import { MemoryLinks } from "../../../testkit/fakes/route/memory-links.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { skipWithoutDummyDevices } from "../../../testkit/support/kernel-modules.ts";
import type { IpAddress } from "../../net/ip.ts";
import { openLinks } from "./netlink-links.ts";
import { linksContract } from "./testing/links-contract.ts";

const A = "10.96.0.1" as IpAddress; // canonical

linksContract({
  name: "in memory",
  skip: false,
  open: async () => {
    const links = new MemoryLinks();
    return {
      links,
      foreign: {
        addLink: async (name) => links.addForeignLink(name, "bridge"),
        deleteLink: async (name) => links.deleteForeignLink(name),
        addAddress: async (link, address, prefixLength) => links.addForeignAddress(link, address, prefixLength),
        removeAddress: async (link, address) => links.removeForeignAddress(link, address),
        removeRoute: async (link, address) => links.removeForeignRoute(link, address),
      },
    };
  },
});

describe("devices in memory", () => {
  test("count messages", async () => {
    const links = new MemoryLinks();
    await links.ensureDummy("d");
    await links.addAddresses("d", [A]);
    await links.addresses("IPv4");
    assert.equal(links.messages, 4);
  });

  test("refuse what they are told to", async () => {
    const links = new MemoryLinks();
    await links.ensureDummy("d");
    const allow = links.refuse(({ kind }) => (kind === "add" ? "ENOMEM" : undefined));
    assert.equal((await links.addAddresses("d", [A]))[0]?.message, "cannot add 10.96.0.1 to d: ENOMEM");
    allow();
    assert.deepEqual(await links.addAddresses("d", [A]), []);
  });

  test("lost announcements are announced", async () => {
    const links = new MemoryLinks();
    const stop = new AbortController();
    const seen: (string | undefined)[] = [];
    const watching = links.watch((link) => seen.push(link), stop.signal);
    links.loseAnnouncements();
    assert.deepEqual(seen, [undefined]);
    stop.abort();
    await watching;
  });

  test("a kernel without dummy devices is told apart", async () => {
    await assert.rejects(new MemoryLinks({ hasDummy: false }).ensureDummy("d"), /module "dummy"/);
  });
});

const ip = (...words: string[]): void => void execFileSync("ip", words, { stdio: ["ignore", "pipe", "pipe"] });

inNetns(import.meta.url, { name: "links", timeoutMs: 180_000 }, () => {
  const skip = skipWithoutDummyDevices();

  linksContract({
    name: "the kernel's",
    skip,
    open: async (t) => {
      const links = openLinks();
      t.after(async () => {
        await links.close();
        for (const name of ["kube-ipvs0", "other"]) spawnSync("ip", ["link", "delete", name]);
      });
      return {
        links,
        foreign: {
          async addLink(name) {
            ip("link", "add", name, "up", "type", "bridge");
          },
          async deleteLink(name) {
            ip("link", "delete", name);
          },
          async addAddress(link, address, prefixLength) {
            ip("address", "add", `${address}/${prefixLength}`, "dev", link);
          },
          async removeAddress(link, address) {
            ip("address", "delete", `${address}/32`, "dev", link);
          },
          async removeRoute(link, address) {
            const family = address.includes(":") ? "-6" : "-4";
            ip(family, "route", "delete", "local", address, "dev", link, "table", "local");
          },
        },
      };
    },
  });

  test("a kernel without dummy devices is refused in words that say what is missing", {
    skip: skip === false && "this one has them",
  }, async () => {
    await using links = openLinks();
    await assert.rejects(
      links.ensureDummy("kube-ipvs0"),
      /kube-ipvs0: the kernel has no dummy devices: load the module/,
    );
  });

  test("a device is created as upstream creates it", { skip }, async () => {
    await using links = openLinks();
    await links.ensureDummy("kube-ipvs0");
    const shown = execFileSync("ip", ["link", "show", "kube-ipvs0"], { encoding: "utf8" });
    // Like upstream's library, we set a queue length of 0, which `ip` does not print.
    assert.match(shown, /<BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN mode DEFAULT group default *\n/);
    await links.deleteDummy("kube-ipvs0");
  });
});
