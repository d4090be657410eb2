/** The codecs against bytes from the kernel, for every captured ruleset of upstream. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { inNetns } from "../../../../testkit/support/in-netns.ts";
import { byteReader, type Codec } from "../../netlink/attributes.ts";
import { NETLINK_NETFILTER, NLA_F_NESTED, NLM_F_DUMP } from "../../netlink/constants.ts";
import { hexDump } from "../../netlink/errors.ts";
import { align4, MessageBuffer } from "../../netlink/message-buffer.ts";
import {
  NFNL_SUBSYS_NFTABLES,
  NFPROTO_IPV4,
  NFPROTO_IPV6,
  nfnetlinkPayload,
  putNfnetlink,
} from "../../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../../netlink/socket.ts";
import * as nft from "./constants.ts";
import type { NftExpression } from "./expressions.ts";
import { chain, elements, rule, set, table } from "./objects.ts";

const CASES = join(import.meta.dirname, "../../../../test/conformance/cases/v1.37");
const TABLE = "kube-proxy";

/** Clears the NESTED bits that we wrote: the kernel does not set them in what it sends. */
function withoutNestedBits(bytes: Buffer): Buffer {
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = bytes.readUInt16LE(at);
    const type = bytes.readUInt16LE(at + 2);
    if (type & NLA_F_NESTED) {
      bytes.writeUInt16LE(type & ~NLA_F_NESTED, at + 2);
      withoutNestedBits(bytes.subarray(at + 4, at + length));
    }
    at += align4(length);
  }
  return bytes;
}

function assertSameBytes<T>(codec: Codec<T>, kernel: Buffer, what: string): T {
  const value = codec.read(byteReader(kernel), 0, kernel.length);
  const out = new MessageBuffer();
  codec.write(out, value);
  const ours = withoutNestedBits(Buffer.from(out.bytes));
  if (!ours.equals(kernel)) {
    assert.fail(`${what}: kernel\n${hexDump(kernel, 4096)}\nours\n${hexDump(ours, 4096)}\n${JSON.stringify(value)}`);
  }
  return value;
}

inNetns(import.meta.url, { name: "nftcodec" }, () => {
  let socket: NetlinkSocket;
  before(() => {
    socket = NetlinkSocket.open(NETLINK_NETFILTER);
  });
  after(() => socket.close());

  async function dump<T>(family: number, message: number, codec: Codec<T>, filter: T): Promise<T[]> {
    const request = new MessageBuffer();
    putNfnetlink(request, NFNL_SUBSYS_NFTABLES, message, NLM_F_DUMP, family, (out) => codec.write(out, filter));
    const found: Buffer[] = [];
    await socket.dump(request, (reply) => {
      const { input, start, end } = nfnetlinkPayload(reply);
      found.push(Buffer.from(input.bytes.subarray(start, end)));
    });
    return found.map((bytes, index) => assertSameBytes(codec, bytes, `message ${message}, reply ${index}`));
  }

  async function roundTripAll(family: number, tableName: string): Promise<NftExpression[]> {
    const tables = await dump(family, nft.NFT_MSG_GETTABLE, table, {});
    if (tables.length === 0) return [];
    await dump(family, nft.NFT_MSG_GETCHAIN, chain, {});
    const sets = await dump(family, nft.NFT_MSG_GETSET, set, { table: tableName });
    for (const { name } of sets) await dump(family, nft.NFT_MSG_GETSETELEM, elements, { table: tableName, set: name });
    const rules = await dump(family, nft.NFT_MSG_GETRULE, rule, { table: tableName });
    return rules.flatMap(({ expressions }) => expressions ?? []);
  }

  describe("what the kernel lists is decoded and encoded to the same bytes", () => {
    for (const name of readdirSync(CASES)) {
      test(name, async () => {
        execFileSync("nft", ["flush", "ruleset"]);
        execFileSync("nft", ["-f", "-"], { input: readFileSync(join(CASES, name, "nftables/nft.txt")) });
        let count = 0;
        for (const family of [NFPROTO_IPV4, NFPROTO_IPV6]) {
          const found = await roundTripAll(family, TABLE);
          assert.deepEqual(
            found.filter(({ kind }) => kind === "unknown"),
            [],
          );
          count += found.length;
        }
        assert.ok(count > 20, `${count} expressions`);
      });
    }

    test("expressions that only other programs use", async () => {
      execFileSync("nft", ["flush", "ruleset"]);
      execFileSync("nft", ["-f", "-"], {
        input: `
          add table ip t
          add counter ip t named
          add chain ip t c
          add chain ip t n { type nat hook output priority -100 ; }
          add set ip t seen { type ipv4_addr ; flags dynamic,timeout ; timeout 1m ; counter ; }
          add set ip t ranges { type ipv4_addr . inet_service ; flags interval ; elements = { 10.0.0.0/8 . 1-9 } ; }
          add element ip t seen { 10.0.0.7 timeout 30s comment "x" }
          add rule ip t c ip saddr 10.0.0.1 counter limit rate 5/second burst 7 packets drop comment "text"
          add rule ip t c ip saddr . tcp dport @ranges counter name named return
          add rule ip t c tcp dport 1-1000 meta mark set ct mark ip dscp set 1 log prefix "x"
          add rule ip t c update @seen { ip saddr timeout 5s counter }
          add rule ip t c ct original ip saddr 10.1.1.1 reject with tcp reset
          add rule ip t n tcp dport 80 redirect to :8080
          add rule ip t n tcp dport 81 dnat to 10.0.0.1-10.0.0.9:80-90 random`,
      });
      const kinds = new Set((await roundTripAll(NFPROTO_IPV4, "t")).map(({ kind }) => kind));
      for (const kind of ["limit", "counter", "objref", "dynset", "redir", "nat", "reject", "unknown"] as const) {
        assert.ok(kinds.has(kind), kind);
      }
    });
  });
});
