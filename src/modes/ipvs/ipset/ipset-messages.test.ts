import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { byteReader } from "../../../kernel/netlink/attributes.ts";
import { NetlinkError } from "../../../kernel/netlink/errors.ts";
import { MessageBuffer } from "../../../kernel/netlink/message-buffer.ts";
import { type Cidr, type IpAddress, ipFromBytes, parseCidr } from "../../../net/ip.ts";
import { PROTOCOL_NAMES } from "../../../net/protocol.ts";
import { type IpsetEntry, ipsetEntryText } from "./ipset.ts";
import { type IpsetReply, IpsetWriter, readReply } from "./ipset-messages.ts";
import { ipsetErrorName } from "./netlink-ipset.ts";

// Payloads as Linux 6.18 sent them, from the nfnetlink header on.
/** A hash:ip,port,net set with the member 10.0.0.1,tcp:80,10.1.0.0/16. */
const LISTED_NET =
  "0200000005000100070000000b0002004b5542452d41000015000300686173683a69702c706f72742c6e657400000000" +
  "0500050002000000050004000800000006000b40000000003c00078008001240000004000800134000010000" +
  "050015000c00000008001140c9e6dc82080019400000000008001a40000002080800184000000001" +
  "38000880340007800c000180080001000a0000010c001480080001000a010000" +
  "060004400050000005001500100000000500070006000000";
/** A bitmap:port set with the members 30000 and 30001. */
const LISTED_PORTS =
  "0200000005000100070000000b0002004b5542452d500000100003006269746d61703a706f72740005000500000000000500040003000000" +
  "06000b40000100002c000780060004400000000006000540ffff0000080019400000000008001a40000020480800184000000002" +
  "1c0008800c00078006000440753000000c0007800600044075310000";
/** An IPv6 hash:ip,port,ip set with the member fd00::1,udp:53,fd00::2. */
const LISTED_IPV6 =
  "0200000005000100070000000b0002004b5542452d36000014000300686173683a69702c706f72742c697000050005000a000000" +
  "050004000600000006000b40000200003c00078008001240000004000800134000010000050015000c000000080011408ec0d42d" +
  "080019400000000008001a40000001500800184000000001" +
  "480008804400078018000180" +
  "14000200fd0000000000000000000000000000011800148014000200fd000000000000000000000000000002" +
  "06000440003500000500070011000000";
/** Protocol version 7, minimum 6. */
const PROTOCOL = "02000000050001000700000005000a0006000000";
/** hash:ip has revision 6. */
const REVISION = "0200000005000100070000000c000300686173683a6970000500050002000000050004000600000005000a0000000000";

// What the tool (7.17) sends, from the nfnetlink header on.
const TOOL_CREATES_NET =
  "02000000050001000700000" +
  "00b0002004b5542452d41000015000300686173683a69702c706f72742c6e6574000000000500040008000000" +
  "05000500020000001400078008001240000004000800134000010000";
const TOOL_CREATES_PORTS =
  "0200000005000100070000000b0002004b5542452d500000100003006269746d61703a706f727400" +
  "050004000300000005000500000000001400078006000440000000000600" +
  "0540ffff0000";

const NLMSG_HEADER = 16;
const NFGENMSG = 4;

function read(payload: string | Uint8Array): IpsetReply {
  const bytes = typeof payload === "string" ? Buffer.from(payload, "hex") : payload;
  return readReply(byteReader(bytes), NFGENMSG, bytes.length);
}

function written(write: (writer: IpsetWriter) => void): Buffer {
  const messages = new MessageBuffer();
  write(new IpsetWriter(messages, 7));
  return Buffer.from(messages.bytes.subarray(NLMSG_HEADER));
}

describe("messages of a kernel about IP sets", () => {
  test("a listed set with networks", () => {
    const { name, type, family, revision, entries } = read(LISTED_NET);
    assert.deepEqual([name, type, family, revision], ["KUBE-A", "hash:ip,port,net", "IPv4", 8]);
    assert.deepEqual(entries, [
      { kind: "ip-port-net", address: "10.0.0.1", protocol: "tcp", port: 80, network: "10.1.0.0/16" },
    ]);
  });

  test("a listed set of ports has no family", () => {
    const { type, family, entries } = read(LISTED_PORTS);
    assert.deepEqual([type, family], ["bitmap:port", undefined]);
    assert.deepEqual(entries.map(ipsetEntryText), ["30000", "30001"]);
  });

  test("a listed set of IPv6", () => {
    const { family, entries } = read(LISTED_IPV6);
    assert.equal(family, "IPv6");
    assert.deepEqual(entries.map(ipsetEntryText), ["fd00::1,udp:53,fd00::2"]);
  });

  test("versions of the interface and of a type", () => {
    assert.equal(read(PROTOCOL).protocol, 7);
    assert.equal(read(REVISION).revision, 6);
  });
});

const anyPort = fc.integer({ min: 0, max: 65535 });
/** An arbitrary that makes plain objects. */
const record = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> =>
  fc.record(model, { noNullPrototype: true });
const anyProtocol = fc.constantFrom(...PROTOCOL_NAMES);
const addressOf = (length: number): fc.Arbitrary<IpAddress> =>
  fc.uint8Array({ minLength: length, maxLength: length }).map(ipFromBytes);
const anyAddress = fc.oneof(addressOf(4), addressOf(16));
const anyNetwork: fc.Arbitrary<Cidr> = fc
  .tuple(anyAddress, fc.nat(128))
  .map(([address, length]) => parseCidr(`${address}/${address.includes(":") ? length : length % 33}`))
  .filter((network) => network !== undefined);
const anyEntry: fc.Arbitrary<IpsetEntry> = fc.oneof(
  record({ kind: fc.constant("ip"), address: anyAddress }),
  record({ kind: fc.constant("port"), port: anyPort }),
  record({ kind: fc.constant("ip-port"), address: anyAddress, protocol: anyProtocol, port: anyPort }),
  record({
    kind: fc.constant("ip-port-ip"),
    address: anyAddress,
    protocol: anyProtocol,
    port: anyPort,
    second: anyAddress,
  }),
  record({
    kind: fc.constant("ip-port-net"),
    address: anyAddress,
    protocol: anyProtocol,
    port: anyPort,
    network: anyNetwork,
  }),
);

describe("messages of ours about IP sets", () => {
  test("create sets with the same bytes as the tool", () => {
    const net = { name: "KUBE-A", type: "hash:ip,port,net", family: "IPv4" } as const;
    assert.equal(written((writer) => writer.create(net, 8)).toString("hex"), TOOL_CREATES_NET);
    const ports = { name: "KUBE-P", type: "bitmap:port", family: undefined } as const;
    assert.equal(written((writer) => writer.create(ports, 3)).toString("hex"), TOOL_CREATES_PORTS);
  });

  test("say what they were given, many entries in one", () => {
    fc.assert(
      fc.property(fc.array(anyEntry, { maxLength: 50 }), (entries) => {
        const bytes = written((writer) => writer.operations("add", "s", entries));
        assert.deepEqual(read(bytes), {
          name: "s",
          type: undefined,
          family: undefined,
          revision: undefined,
          protocol: 7,
          entries,
        });
      }),
    );
  });

  test("never leave out the set's name: that would mean every set", () => {
    assert.throws(() => written((writer) => writer.destroy("")), /needs a name/);
  });

  test("cut short, with a byte changed or made of anything are read or refused as malformed", () => {
    const anyBytes = fc.oneof(
      fc.uint8Array({ minLength: NFGENMSG, maxLength: 200 }),
      fc
        .tuple(fc.constantFrom(LISTED_NET, LISTED_PORTS, LISTED_IPV6), fc.nat(), fc.nat(), fc.nat(255))
        .map(([hex, cut, at, byte]) => {
          const bytes = Buffer.from(hex, "hex");
          bytes[at % bytes.length] = byte;
          return bytes.subarray(0, Math.max(NFGENMSG, cut % (bytes.length + 1)));
        }),
    );
    fc.assert(
      fc.property(anyBytes, (bytes) => {
        try {
          read(bytes);
        } catch (error) {
          assert.ok(error instanceof NetlinkError && error.code === "malformed", String(error));
        }
      }),
      { numRuns: 3000 },
    );
  });
});

test("ipset's error numbers have names, which may depend on the type", () => {
  assert.equal(ipsetErrorName(4097, "hash:ip"), "IPSET_ERR_PROTOCOL");
  assert.equal(ipsetErrorName(4100, "hash:ip"), "IPSET_ERR_BUSY");
  assert.equal(ipsetErrorName(4104, "bitmap:port"), "IPSET_ERR_INVALID_CIDR");
  assert.equal(ipsetErrorName(4352, "hash:ip,port"), "IPSET_ERR_HASH_FULL");
  assert.equal(ipsetErrorName(4352, "bitmap:port"), "IPSET_ERR_BITMAP_RANGE");
  assert.equal(ipsetErrorName(2, "hash:ip"), "ENOENT");
  assert.equal(ipsetErrorName(4999, "hash:ip"), "E4999");
});
