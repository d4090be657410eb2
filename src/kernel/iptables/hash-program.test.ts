import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { IP_FAMILIES, type IpAddress, type IpFamily, ipBytes } from "../../net/ip.ts";
import { clientHash, type HashProgram, hashProgramText, readHashProgram } from "./hash-program.ts";
import { parseLoosely } from "./parser/loose-rule.ts";
import { parseRuleText, printRule } from "./parser/rule-syntax.ts";

const SOURCES: Readonly<Record<IpFamily, readonly string[]>> = {
  IPv4: ["10.0.0.1", "255.255.255.255", "192.168.13.77"],
  IPv6: ["fd00::1", "2001:db8:ffff:1234:5678:9abc:def0:1", "::"],
};

/** The packet from its network header on: its header, with 4 bytes of options for IPv4, and two ports. */
function packetFrom(source: IpAddress, port: number): DataView {
  const bytes = ipBytes(source);
  const [length, at] = bytes.length === 4 ? [24, 12] : [40, 8];
  const packet = new Uint8Array(length + 4);
  packet[0] = bytes.length === 4 ? 0x46 : 0x60;
  packet.set(bytes, at);
  packet.set([port >> 8, port & 255, 0, 80], length);
  return new DataView(packet.buffer);
}

/** Runs classic BPF as the kernel does (Documentation/networking/filter.rst). */
function run(text: string, packet: DataView): number {
  const code = text.split(",").slice(1);
  assert.equal(code.length, Number(text.split(",")[0]));
  assert.ok(code.length <= 64, "xt_bpf takes 64 instructions");
  let [a, x, stored] = [0, 0, 0];
  for (let at = 0; at < code.length; at += 1) {
    const [operation = 0, yes = 0, no = 0, k = 0] = (code[at] ?? "").split(" ").map(Number);
    if (operation === 32) a = packet.getUint32(k);
    else if (operation === 40) a = packet.getUint16(k);
    else if (operation === 72) a = packet.getUint16(x + k);
    else if (operation === 177) x = 4 * (packet.getUint8(k) & 15);
    else if (operation === 36) a = Math.imul(a, k) >>> 0;
    else if (operation === 4) a = (a + k) >>> 0;
    else if (operation === 12) a = (a + x) >>> 0;
    else if (operation === 2) stored = a;
    else if (operation === 97) x = stored;
    else if (operation === 7) x = a;
    else if (operation === 116) a >>>= k;
    else if (operation === 172) a = (a ^ x) >>> 0;
    else if (operation === 53) at += a >= k ? yes : no;
    else if (operation === 6) return k;
    else assert.fail(`instruction ${code[at]}`);
  }
  return assert.fail("it does not return");
}

describe("the program of a client's hash", () => {
  for (const family of IP_FAMILIES) {
    for (const isFlow of [false, true]) {
      test(`matches exactly below its bound: ${family}, ${isFlow ? "flow" : "source"}`, () => {
        for (const source of SOURCES[family] as readonly IpAddress[]) {
          for (const seed of [0, 1, 0xcafe1234, 0xffffffff]) {
            const hash = clientHash({ isFlow, seed }, source, 40_001) ?? Number.NaN;
            for (const below of [hash, Math.min(hash + 1, 0xffffffff)]) {
              const text = hashProgramText({ family, isFlow, seed, below });
              assert.equal(run(text, packetFrom(source, 40_001)) !== 0, hash < below, `${source} ${seed} ${below}`);
            }
          }
        }
      });

      test(`is read back as what it is: ${family}, ${isFlow ? "flow" : "source"}`, () => {
        const program: HashProgram = { family, isFlow, seed: 0xcafe1234, below: 0x55555555 };
        const text = hashProgramText(program);
        assert.deepEqual(readHashProgram(text, family), program);
        assert.equal(readHashProgram(text, family === "IPv4" ? "IPv6" : "IPv4"), undefined);
        assert.equal(readHashProgram(text.replace("2654435761", "2654435763"), family), undefined);
        const rule = `-m bpf --bytecode "${text}" -j KUBE-SEP-A`;
        assert.equal(printRule(parseRuleText(rule, family)), rule);
      });
    }
  }

  test("a program of another author is not understood, and named", () => {
    for (const text of ["1,6 0 0 65535", "", "no program", "4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0"]) {
      const { foreign, matches } = parseLoosely(`-m bpf --bytecode "${text}" -j DROP`, "IPv4");
      assert.deepEqual([foreign.map(({ name }) => name), matches], [["bpf"], []], text);
    }
  });

  test("is not known of a flow without a source port", () => {
    const source = "10.0.0.1" as IpAddress;
    assert.equal(clientHash({ isFlow: true, seed: 1 }, source, undefined), undefined);
    assert.notEqual(clientHash({ isFlow: false, seed: 1 }, source, undefined), undefined);
  });
});
