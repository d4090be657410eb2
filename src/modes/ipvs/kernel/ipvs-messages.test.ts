import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { byteReader } from "../../../kernel/netlink/attributes.ts";
import { NetlinkError } from "../../../kernel/netlink/errors.ts";
import { MessageBuffer } from "../../../kernel/netlink/message-buffer.ts";
import { type IpAddress, ipFromBytes } from "../../../net/ip.ts";
import { PROTOCOLS } from "../../../net/protocol.ts";
import type { IpvsOperation, RealServer, VirtualServer } from "./ipvs.ts";
import {
  ipvsMessage,
  toConnections,
  toRealServer,
  toTimeouts,
  toVirtualServer,
  writeRequest,
} from "./ipvs-messages.ts";
import {
  DESTINATION,
  DESTINATION_IPV6,
  IPVSADM_ADDS_SERVICE,
  SERVICE_OF_MARK,
  SERVICE_RR,
  SERVICE_SH_IPV6,
  TIMEOUTS,
} from "./testing/kernel-messages.ts";

const NLMSG_HEADER = 16;
const GENERIC_HEADER = 4;

type Message = ReturnType<typeof ipvsMessage.read>;

function read(payload: string | Uint8Array): Message {
  const bytes = typeof payload === "string" ? Buffer.from(payload, "hex") : payload;
  return ipvsMessage.read(byteReader(bytes), GENERIC_HEADER, bytes.length);
}

/** The payload of an operation's message, from the generic header on. */
function written(write: (messages: MessageBuffer) => void): Buffer {
  const messages = new MessageBuffer();
  write(messages);
  return Buffer.from(messages.bytes.subarray(NLMSG_HEADER));
}

const writtenOperation = (operation: IpvsOperation): Buffer =>
  written((messages) => writeRequest(messages, 32, operation));

describe("IPVS messages of a kernel", () => {
  test("a virtual server, without the kernel's own mark", () => {
    assert.deepEqual(toVirtualServer(read(SERVICE_RR)), {
      address: "10.96.0.1",
      protocol: "TCP",
      port: 80,
      scheduler: "rr",
      flags: 0,
      timeoutSeconds: 0,
    });
  });

  test("a persistent one of IPv6 with a scheduler's flag", () => {
    assert.deepEqual(toVirtualServer(read(SERVICE_SH_IPV6)), {
      address: "fd00::1",
      protocol: "UDP",
      port: 53,
      scheduler: "sh",
      flags: 0x11,
      timeoutSeconds: 120,
    });
  });

  test("one of a firewall mark is none of ours", () => {
    assert.equal(toVirtualServer(read(SERVICE_OF_MARK)), undefined);
  });

  test("connections", () => {
    assert.equal(toConnections(read(SERVICE_RR)), 0);
    const used = SERVICE_RR.replace("0c0001000000000000000000", "0c0001000300000001000000");
    assert.equal(toConnections(read(used)), 2 ** 32 + 3);
  });

  test("real servers of both families, and of kernels that do not say which", () => {
    const idle = { activeConnections: 0, inactiveConnections: 0, connections: 0 };
    const four = { address: "10.180.0.1", port: 8080, weight: 7, ...idle };
    assert.deepEqual(toRealServer(read(DESTINATION), "IPv4"), four);
    assert.deepEqual(toRealServer(read(DESTINATION.replace("06000b00", "06007f00")), "IPv4"), four);
    assert.deepEqual(toRealServer(read(DESTINATION_IPV6), "IPv6"), {
      address: "fd00::2",
      port: 5353,
      weight: 1,
      ...idle,
    });
  });

  test("timeouts", () => {
    assert.deepEqual(toTimeouts(read(TIMEOUTS)), { tcp: 900, tcpFin: 120, udp: 300 });
    const set = written((messages) =>
      writeRequest(messages, 32, { kind: "set-timeouts", timeouts: { tcp: 900, tcpFin: 120, udp: 300 } }),
    );
    assert.equal(set.toString("hex", GENERIC_HEADER), TIMEOUTS.slice(2 * GENERIC_HEADER));
  });
});

/** An arbitrary that makes plain objects. */
const record = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> =>
  fc.record(model, { noNullPrototype: true });
const anyProtocol = fc.constantFrom(...PROTOCOLS);
const anyPort = fc.integer({ min: 0, max: 65535 });
const addressOf = (length: number): fc.Arbitrary<IpAddress> =>
  fc.uint8Array({ minLength: length, maxLength: length }).map(ipFromBytes);
const anyAddress = fc.oneof(addressOf(4), addressOf(16));
const anyVirtualServer: fc.Arbitrary<VirtualServer> = record({
  address: anyAddress,
  protocol: anyProtocol,
  port: anyPort,
  scheduler: fc.constantFrom("rr", "wrr", "mh", "lblcr"),
  flags: fc.nat(0x3f).map((flags) => flags & ~2),
  timeoutSeconds: fc.nat(0x7fff_ffff),
});
const anyRealServer: fc.Arbitrary<RealServer> = record({
  address: anyAddress,
  port: anyPort,
  weight: fc.nat(65535),
});

describe("IPVS messages of ours", () => {
  test("add a virtual server with the same bytes as ipvsadm", () => {
    const virtualServer: VirtualServer = {
      address: "10.96.0.2" as IpAddress, // canonical
      protocol: "TCP",
      port: 80,
      scheduler: "rr",
      flags: 0,
      timeoutSeconds: 0,
    };
    assert.equal(writtenOperation({ kind: "add-virtual-server", virtualServer }).toString("hex"), IPVSADM_ADDS_SERVICE);
  });

  test("say what they were given", () => {
    fc.assert(
      fc.property(anyVirtualServer, anyRealServer, (virtualServer, realServer) => {
        const bytes = writtenOperation({ kind: "add-virtual-server", virtualServer });
        assert.deepEqual(toVirtualServer(read(bytes)), virtualServer);
        const both = read(writtenOperation({ kind: "update-real-server", virtualServer, realServer }));
        assert.deepEqual(toRealServer(both, "IPv4"), { ...realServer, activeConnections: 0, inactiveConnections: 0 });
        assert.equal(both.service?.port, virtualServer.port);
      }),
    );
  });

  test("cut short, with a byte changed or made of anything are read or refused as malformed", () => {
    const anyBytes = fc.oneof(
      fc.uint8Array({ minLength: GENERIC_HEADER, maxLength: 200 }),
      fc
        .tuple(fc.constantFrom(SERVICE_RR, SERVICE_SH_IPV6, DESTINATION, TIMEOUTS), fc.nat(), fc.nat(), fc.nat(255))
        .map(([hex, cut, at, byte]) => {
          const bytes = Buffer.from(hex, "hex");
          bytes[at % bytes.length] = byte;
          return bytes.subarray(0, Math.max(GENERIC_HEADER, cut % (bytes.length + 1)));
        }),
    );
    fc.assert(
      fc.property(anyBytes, (bytes) => {
        try {
          const message = read(bytes);
          toVirtualServer(message);
          toRealServer(message, "IPv6");
          toConnections(message);
          toTimeouts(message);
        } catch (error) {
          assert.ok(error instanceof NetlinkError && error.code === "malformed", String(error));
        }
      }),
      { numRuns: 3000 },
    );
  });
});
