import assert from "node:assert/strict";
import { test } from "node:test";
import { parseIpAddress } from "../../net/ip.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { writeTcpQuestion } from "./sock-diag.ts";

const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);

test("a question for one socket has the layout of linux/inet_diag.h", () => {
  const request = new MessageBuffer();
  writeTcpQuestion(request, {
    ...{
      protocol: "TCP",
      sourceIP: ip("10.0.0.1"),
      sourcePort: 40_000,
      destinationIP: ip("10.0.0.2"),
      destinationPort: 80,
    },
    ...{
      replySourceIP: ip("10.0.0.2"),
      replySourcePort: 80,
      replyDestinationIP: ip("10.0.0.1"),
      replyDestinationPort: 40_000,
    },
  });
  const hex = request.bytes.toString("hex");
  // nlmsghdr: 16 + sizeof(inet_diag_req_v2), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_ACK; sequence and port number.
  assert.equal(request.bytes.length, 72);
  assert.equal(request.bytes.readUint16LE(4), 20);
  assert.equal(request.bytes.readUint16LE(6), 5);
  // AF_INET, IPPROTO_TCP, no extension, padding, all states, then the socket's id: ports, addresses, interface, no cookie.
  assert.equal(hex.slice(32, 40), "02060000");
  assert.equal(
    hex.slice(48),
    ["9c400050", "0a000001", "0".repeat(24), "0a000002", "0".repeat(24), "0".repeat(8), "f".repeat(16)].join(""),
  );
});
