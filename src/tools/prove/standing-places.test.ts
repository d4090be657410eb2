import assert from "node:assert/strict";
import { test } from "node:test";
import { ip, makeServicePort } from "../../model/testing/records.ts";
import { newPacket } from "../../trace/packet.ts";
import type { Question } from "../../trace/question.ts";
import { only } from "./asking.ts";
import type { Side } from "./proof.ts";
import { besideStanding } from "./standing-places.ts";

const OWN = [ip("192.0.2.1"), ip("127.0.0.1")];
const port = makeServicePort({ port: 80, nodePort: 30080, externalIPs: [ip("203.0.113.7")] });

function side(name: string): Side {
  const fates = { fateOf: () => only(name) };
  return { name, fates, proxyPart: fates, why: () => name };
}

test("packets to a port that stands are not compared, all others are", () => {
  const sides = besideStanding([port], OWN, [side("one"), side("other")]);
  const fatesAt = (destination: string, destinationPort: number, protocol = "tcp") => {
    const asked: Question[] = [];
    const ends = { source: ip("192.0.2.9"), sourcePort: 40_000, destination: ip(destination), destinationPort };
    const packet = newPacket({ family: "IPv4", protocol, inInterface: "eth0", ...ends });
    const parts = [sides[0].fates, sides[1].fates, sides[1].proxyPart ?? assert.fail()];
    const said = parts.map((part) => [...part.fateOf(packet, (question) => void asked.push(question)).keys()].join());
    assert.ok(asked.length > 0, "classes are divided by it");
    return [...new Set(said)].join();
  };
  const ASIDE = "not compared";
  assert.equal(fatesAt(port.clusterIP, 80), ASIDE);
  assert.equal(fatesAt(port.clusterIP, 81, "udp"), ASIDE, "what uses its cluster IP changes the other ports, too");
  assert.equal(fatesAt("203.0.113.7", 80), ASIDE);
  for (const own of OWN) assert.equal(fatesAt(own, 30080), ASIDE);
  assert.equal(fatesAt("203.0.113.7", 81), "one,other", "another Service may have the address");
  assert.equal(fatesAt("203.0.113.7", 80, "udp"), "one,other");
  assert.equal(fatesAt("203.0.113.8", 30080), "one,other");
});

test("without any, the sides are as they were", () => {
  const sides = [side("one"), side("other")] as const;
  assert.equal(besideStanding([], OWN, sides), sides);
});
