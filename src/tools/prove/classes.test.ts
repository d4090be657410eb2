import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { newPacket, type Packet } from "../../trace/packet.ts";
import { fieldsQuestion, type Key, type PacketField, whichOf } from "../../trace/question.ts";
import { fits, type Pattern } from "../../trace/value.ts";
import { classesOf, type PacketClass, type RootClass, type Subject, UnprovableError } from "./classes.ts";
import { addressDomain, type Domain, Groups, onlyAddresses, PORTS } from "./domain.ts";

const SMALL = 8;
/** A domain of one name. */
function only(value: string | number): Domain {
  const whole: Domain = {
    isSingle: true,
    has: (other) => other === value,
    sample: () => value,
    divided: () => [whole],
  };
  return whole;
}

const client = parseIpAddress("192.0.2.1");
const service = parseIpAddress("10.96.0.1");
assert.ok(client && service);
const one = (address: string): Pattern => ({ kind: "exact", value: address });

/** Ports below {@link SMALL}, as all that a packet can differ in. */
function portsOnly(): Domain {
  const [few] = PORTS.divided(new Groups([{ kind: "range", first: 0n, last: BigInt(SMALL - 1) }], () => ""));
  assert.ok(few);
  return few;
}

function rootOf(): RootClass {
  const packets: PacketClass = {
    source: onlyAddresses(32, [one("192.0.2.1")]),
    destination: onlyAddresses(32, [one("10.96.0.1")]),
    sourcePort: portsOnly(),
    destinationPort: portsOnly(),
    protocol: only("tcp"),
    inInterface: only("eth0"),
    bridgePort: only(""),
    udpLength: only(8),
  };
  return { packets, origin: "elsewhere" };
}

function packetWith(sourcePort: number, destinationPort: number): Packet {
  assert.ok(client && service);
  return newPacket({
    ...{ family: "IPv4", source: client, sourcePort, destination: service, destinationPort },
    ...{ protocol: "tcp", inInterface: "eth0", bridgePort: "", udpLength: 8, origin: "elsewhere" },
  });
}

/** A rule: whether ports fit these ranges, and the fate if so. */
interface Rule {
  readonly fields: readonly PacketField[];
  readonly ranges: readonly (readonly [number, number])[];
  readonly fate: string;
}

const anyRange = fc
  .tuple(fc.nat({ max: SMALL - 1 }), fc.nat({ max: 3 }))
  .map(([first, more]): readonly [number, number] => [first, first + more]);
const anyRule: fc.Arbitrary<Rule> = fc
  .tuple(
    fc.constantFrom<readonly PacketField[]>(["sourcePort"], ["destinationPort"], ["sourcePort", "destinationPort"]),
    fc.array(anyRange, { minLength: 2, maxLength: 2 }),
    fc.constantFrom("accept", "drop", "other"),
  )
  .map(([fields, ranges, fate]) => ({ fields, ranges: ranges.slice(0, fields.length), fate }));

/** The first rule that fits decides. */
function subjectOf(rules: readonly Rule[]): Subject<string> {
  const asked = rules.map(({ fields, ranges }) => {
    const patterns = ranges.map(
      ([first, last]): Pattern => ({ kind: "range", first: BigInt(first), last: BigInt(last) }),
    );
    const key: Key = { patterns, outcome: "fits" };
    return fieldsQuestion(fields, [key]);
  });
  return {
    fateOf(packet, ask) {
      for (const [index, { fields, fate }] of rules.entries()) {
        const question = asked[index];
        assert.ok(question);
        ask(question, packet);
        const patterns = question.keys[0]?.patterns ?? [];
        if (fields.every((field, at) => fits(patterns[at] ?? one(""), packet[field] ?? ""))) return fate;
      }
      return "left alone";
    },
  };
}

const isIn = (packets: PacketClass, packet: Packet) =>
  packets.sourcePort.has(packet.sourcePort ?? -1) && packets.destinationPort.has(packet.destinationPort ?? -1);

test("every packet is in exactly one class, and has the fate of its class in each subject", () => {
  fc.assert(
    fc.property(fc.array(anyRule, { maxLength: 4 }), fc.array(anyRule, { maxLength: 4 }), (first, second) => {
      const subjects = [subjectOf(first), subjectOf(second)];
      const classes = [...classesOf("IPv4", [rootOf()], subjects)];
      for (let sourcePort = 0; sourcePort < SMALL; sourcePort++) {
        for (let destinationPort = 0; destinationPort < SMALL; destinationPort++) {
          const packet = packetWith(sourcePort, destinationPort);
          const owners = classes.filter(({ packets }) => isIn(packets, packet));
          assert.equal(owners.length, 1, `${sourcePort} to ${destinationPort}`);
          assert.deepEqual(
            owners[0]?.fates,
            subjects.map((subject) => subject.fateOf(packet, () => {})),
          );
        }
      }
      for (const { packets, example } of classes) assert.ok(isIn(packets, example));
    }),
  );
});

test("what cannot be proved is said of the packets that meet it, and the others are still compared", () => {
  const question = whichOf("destinationPort", [3]);
  const subject: Subject<string> = {
    fateOf(packet, ask) {
      ask(question, packet);
      if (packet.destinationPort === 3) throw new UnprovableError("a limit");
      return "accept";
    },
  };
  const classes = [...classesOf("IPv4", [rootOf()], [subject])];
  assert.equal(classes.length, 2);
  for (const { packets, unproved, fates } of classes) {
    assert.equal(unproved, packets.destinationPort.has(3) ? "a limit" : undefined);
    assert.deepEqual(fates, unproved === undefined ? ["accept"] : []);
  }
});

test("another error than what cannot be proved is no answer", () => {
  const broken: Subject<string> = {
    fateOf: () => {
      throw new TypeError("a fault");
    },
  };
  assert.throws(() => [...classesOf("IPv4", [rootOf()], [broken])], /a fault/);
});

test("a question with many answers in many classes is not asked to the end, and what is left is said", () => {
  const length = 50_000;
  const values = Array.from({ length }, (_, at) => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`);
  const isFrom = whichOf("source", values);
  const ports = Array.from({ length: 12 }, (_, port) => whichOf("destinationPort", [port]));
  const subject: Subject<string> = {
    fateOf(packet, asked) {
      for (const port of ports) asked(port, packet);
      asked(isFrom, packet);
      return packet.source;
    },
  };
  const root: RootClass = {
    ...rootOf(),
    packets: { ...rootOf().packets, source: addressDomain(32, []), destinationPort: PORTS },
  };
  let [tried, left] = [0, 0];
  for (const { packets, fates, unproved } of classesOf("IPv4", [root], [subject])) {
    if (unproved === undefined) tried += fates.length;
    else if (left++ === 0) assert.match(unproved, /compare the source with 50000 values/);
    assert.equal(packets.source.isSingle || packets.source.has("192.0.2.1") || unproved !== undefined, true);
  }
  assert.ok(left > 0 && left < SMALL, `${left}`);
  assert.ok(tried >= 8 * length && tried < 9 * length + 100, `${tried}`);
});
