import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, test } from "node:test";
import { MemoryIpset } from "../../../../testkit/fakes/ipset/memory-ipset.ts";
import { inNetns } from "../../../../testkit/support/in-netns.ts";
import type { IpAddress, IpFamily } from "../../../net/ip.ts";
import { type IpsetDefinition, ipsetEntryText } from "./ipset.ts";
import { openIpset } from "./netlink-ipset.ts";
import { ipsetContract } from "./testing/ipset-contract.ts";

ipsetContract({
  name: "in memory",
  open: async () => {
    const ipset = new MemoryIpset();
    return {
      ipset,
      async refer(name) {
        ipset.references.add(name);
        return async () => void ipset.references.delete(name);
      },
      async createForeign(name, type, family) {
        ipset.createForeign(name, type, family);
      },
    };
  },
});

describe("IP sets in memory", () => {
  const set: IpsetDefinition = { name: "s", type: "hash:ip", family: "IPv4" };
  const entry = { kind: "ip", address: "10.0.0.1" as IpAddress } as const; // canonical

  test("count messages, and remember what was carried out until asked", async () => {
    const ipset = new MemoryIpset();
    await ipset.ensure(set);
    const operation = { kind: "add", set: "s", entry } as const;
    await ipset.apply([operation, { ...operation, set: "gone" }]);
    assert.equal(ipset.messages, 3);
    assert.deepEqual(ipset.takeOperations(), [operation]);
    assert.deepEqual(ipset.takeOperations(), []);
  });

  test("refuse what they are told to", async () => {
    const ipset = new MemoryIpset();
    await ipset.ensure(set);
    const allow = ipset.refuse(({ kind }) => (kind === "add" ? "ENOMEM" : undefined));
    const [failure] = await ipset.apply([{ kind: "add", set: "s", entry }]);
    assert.equal(failure?.message, "ipset: cannot add 10.0.0.1 to s: ENOMEM");
    allow();
    assert.deepEqual(await ipset.apply([{ kind: "add", set: "s", entry }]), []);
  });
});

const tool = (...args: string[]): string => execFileSync("ipset", args, { encoding: "utf8" });
const familyWord = (family: IpFamily): string => (family === "IPv4" ? "inet" : "inet6");

inNetns(import.meta.url, { name: "ipset", timeoutMs: 180_000 }, () => {
  ipsetContract({
    name: "the kernel's",
    open: async (t) => {
      const ipset = openIpset();
      t.after(async () => {
        await ipset.close();
        tool("destroy");
      });
      return {
        ipset,
        async refer(name) {
          const rule = ["-m", "set", "--match-set", name, "src", "-j", "ACCEPT"];
          execFileSync("iptables", ["-w", "-A", "INPUT", ...rule]);
          return async () => void execFileSync("iptables", ["-w", "-D", "INPUT", ...rule]);
        },
        async createForeign(name, type, family) {
          tool("create", name, type, ...(family === undefined ? [] : ["family", familyWord(family)]));
        },
      };
    },
  });

  describe("IP sets as the ipset tool sees them", () => {
    const types = ["hash:ip", "hash:ip,port", "hash:ip,port,ip", "hash:ip,port,net"] as const;
    const definitions: readonly IpsetDefinition[] = [
      ...types.map((type) => ({ name: `4-${type}`, type, family: "IPv4" }) as const),
      ...types.map((type) => ({ name: `6-${type}`, type, family: "IPv6" }) as const),
      { name: "ports", type: "bitmap:port", family: undefined },
    ];

    test("sets are defined as upstream's commands define them", async () => {
      await using ipset = openIpset();
      for (const definition of definitions) {
        const { name, type, family } = definition;
        const words =
          family === undefined
            ? ["range", "0-65535"]
            : ["family", familyWord(family), "hashsize", "1024", "maxelem", "65536"];
        tool("create", `tool-${name}`, type, ...words, "-exist");
        await ipset.ensure(definition);
        const described = (set: string): string[] => tool("list", set).split("\n").slice(1).map(withoutSeed);
        assert.deepEqual(described(name), described(`tool-${name}`));
        // Each accepts the other's set as its own.
        tool("create", name, type, ...words, "-exist");
        await ipset.ensure({ ...definition, name: `tool-${name}` });
      }
      tool("destroy");
    });

    test("members that the tool adds are read, an exception is none", async () => {
      await using ipset = openIpset();
      tool("create", "s", "hash:ip,port,net");
      const members = ["1.2.3.4,tcp:80,10.0.0.0/8", "1.2.3.4,udp:53,10.1.2.3", "1.2.3.4,sctp:9,0.0.0.0/1"];
      for (const member of members) tool("add", "s", member);
      tool("add", "s", "1.2.3.4,tcp:80,10.1.0.0/16", "nomatch");
      assert.deepEqual(((await ipset.members("s")) ?? []).map(ipsetEntryText).sort(), members.sort());
      tool("destroy");
    });

    test("a set with timeouts is not taken for one without", async () => {
      await using ipset = openIpset();
      tool("create", "s", "hash:ip", "timeout", "60");
      await assert.rejects(ipset.ensure({ name: "s", type: "hash:ip", family: "IPv4" }), /another type, family/);
      tool("destroy");
    });
  });
});

function withoutSeed(line: string): string {
  return line.replace(/ initval \w+/, "").replace(/^Size in memory: .*/, "");
}
