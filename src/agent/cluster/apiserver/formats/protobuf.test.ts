/** The API server's protobuf yields the same records as its JSON; unknown fields are skipped. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { slice } from "../../../../../test/apiserver/example-objects.ts";
import { encodeEvent, encodeList, encodeMessage, encodeObject } from "../../../../../test/apiserver/protobuf/encode.ts";
import fixtures from "../../../../../test/apiserver/protobuf/fixtures.json" with { type: "json" };
import fc from "../../../../../testkit/support/fast-check.ts";
import { ENDPOINT_SLICE, NODE, SERVICE, SERVICE_CIDR } from "../../../../model/projection/kinds.ts";
import { statusError } from "../connection/status.ts";
import { formatOf, PROTOBUF_FORMAT, prefersProtobuf } from "./body-format.ts";
import { decode } from "./decode.ts";
import { FormatError } from "./pieces.ts";
import { MESSAGES, MESSAGES_WITH_PODS, readProtobuf } from "./protobuf.ts";

const KINDS = [SERVICE, ENDPOINT_SLICE, SERVICE_CIDR, NODE];
const V1 = "v1";

/** The record that the program projects from an object. */
function meaningOf(message: string, object: unknown, keepsPods = false): unknown {
  const kind = KINDS.find(({ title }) => title === message);
  if (kind !== undefined) {
    return { record: kind.project(object, undefined, keepsPods), isSelected: kind.isSelected(object) };
  }
  const { code, message: text, facts } = statusError("list", Object(object), 500);
  return { code, text, facts };
}

function read(message: string, bytes: Buffer, messages = MESSAGES): unknown {
  return readProtobuf(encodeObject({ kind: message, apiVersion: V1 }, bytes), messages);
}

/** Pushes bytes in chunks of these sizes, repeating the last size. */
function feed(body: { push(chunk: Buffer): void }, bytes: Buffer, sizes: readonly number[]): void {
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[Math.min(turn, sizes.length - 1)] ?? 1;
    body.push(bytes.subarray(at, at + size));
    at += size;
  }
}

for (const { message, hex, json } of fixtures) {
  const bytes = Buffer.from(hex, "hex");

  test(`protoc's ${message} means what its JSON means`, () => {
    assert.deepEqual(meaningOf(message, read(message, bytes)), meaningOf(message, json));
    const withPods = read(message, bytes, MESSAGES_WITH_PODS);
    assert.deepEqual(meaningOf(message, withPods, true), meaningOf(message, json, true));
  });

  test(`unknown fields change nothing in a ${message}`, () => {
    // Field 1000 as a varint, eight bytes, a string and four bytes.
    const unknown = Buffer.from("c03e01c13e0000000000000000c23e03666f6fc53e00000000", "hex");
    const both = Buffer.concat([unknown, bytes, unknown]);
    assert.deepEqual(read(message, both), read(message, bytes));
  });

  test(`a ${message} that ends anywhere is refused, or ends between two fields`, () => {
    const schema = MESSAGES.get(message) ?? [];
    for (let length = 0; length < bytes.length; length++) {
      const part = bytes.subarray(0, length);
      try {
        decode(schema, part);
      } catch (error) {
        assert.ok(error instanceof FormatError, String(error));
      }
    }
  });
}

const text = fc.string({ unit: "grapheme", maxLength: 20 });
const port = fc.integer({ min: -3, max: 70_000 });
const labels = fc.dictionary(
  fc.oneof(fc.constantFrom("service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name", "a"), text),
  text,
);
const metadata = fc.record(
  {
    name: fc.constantFrom("a", "b-1", "Bad"),
    namespace: fc.constantFrom("n", "_"),
    uid: text,
    labels,
    annotations: labels,
  },
  { requiredKeys: ["name", "namespace"] },
);
const addresses = fc.array(fc.constantFrom("10.0.0.1", "10.0.0.2", "fd00::1", "nonsense"), { maxLength: 3 });
const anyService = fc.record({
  metadata,
  spec: fc.record(
    {
      type: fc.constantFrom("ClusterIP", "NodePort", "Other"),
      clusterIP: fc.constantFrom("10.0.0.1", "None"),
      clusterIPs: addresses,
      ports: fc.array(fc.record({ name: text, protocol: fc.constantFrom("TCP", "SCTP"), port, nodePort: port })),
      externalIPs: addresses,
      loadBalancerSourceRanges: fc.array(text),
      sessionAffinity: fc.constantFrom("None", "ClientIP"),
      sessionAffinityConfig: fc.record({ clientIP: fc.record({ timeoutSeconds: port }) }),
      ipFamilies: fc.array(fc.constantFrom("IPv4", "IPv6"), { maxLength: 2 }),
      healthCheckNodePort: port,
    },
    { requiredKeys: [] },
  ),
});
const anySlice = fc.record({
  metadata,
  addressType: fc.constantFrom("IPv4", "IPv6", "FQDN"),
  ports: fc.array(fc.record({ name: text, protocol: fc.constantFrom("TCP", "UDP"), port }, { requiredKeys: [] })),
  endpoints: fc.array(
    fc.record(
      {
        addresses,
        conditions: fc.record(
          { ready: fc.boolean(), serving: fc.boolean(), terminating: fc.boolean() },
          { requiredKeys: [] },
        ),
        nodeName: fc.constantFrom("node-a", "node-b"),
        zone: text,
        hints: fc.record({ forZones: fc.array(fc.record({ name: fc.constantFrom("a", "b") }), { minLength: 1 }) }),
      },
      { requiredKeys: ["addresses"] },
    ),
  ),
});

test("any object means the same in protobuf and in JSON", () => {
  const objects = fc.oneof(
    anyService.map((object) => ["Service", object] as const),
    anySlice.map((object) => ["EndpointSlice", object] as const),
  );
  fc.assert(
    fc.property(objects, ([message, object]) => {
      // The API server omits empty lists, too.
      const withoutEmpty = (_: string, value: unknown) =>
        Array.isArray(value) && value.length === 0 ? undefined : value;
      const json: unknown = JSON.parse(JSON.stringify(object), withoutEmpty);
      assert.deepEqual(meaningOf(message, read(message, encodeMessage(message, object))), meaningOf(message, json));
    }),
    { numRuns: 500 },
  );
});

const chunkSizes = fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1, maxLength: 5 });
const bodies = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 6 });
const SLICES = { kind: "EndpointSlice", apiVersion: "discovery.k8s.io/v1" };
const sliceBytes = (count: number): Buffer => encodeMessage("EndpointSlice", slice(count, count));

test("wherever the chunks of a list end, each of its objects comes out once and whole", () => {
  fc.assert(
    fc.property(bodies, chunkSizes, (counts, sizes) => {
      const items: unknown[] = [];
      const list = PROTOBUF_FORMAT.list((item) => items.push(item));
      const metadataOfList = { resourceVersion: "7", continue: "next" };
      feed(list, encodeList(SLICES, metadataOfList, counts.map(sliceBytes)), sizes);
      assert.deepEqual(
        items.map((item) => meaningOf("EndpointSlice", item)),
        counts.map((count) => meaningOf("EndpointSlice", slice(count, count))),
      );
      assert.deepEqual(list.end(), { kind: "EndpointSliceList", metadata: metadataOfList });
    }),
  );
});

test("wherever the chunks of a watch end, each of its events comes out once and whole", () => {
  fc.assert(
    fc.property(bodies, chunkSizes, (counts, sizes) => {
      const events: unknown[] = [];
      const body = PROTOBUF_FORMAT.events((event) => events.push(event));
      feed(
        body,
        Buffer.concat(counts.map((count) => encodeEvent("ADDED", encodeObject(SLICES, sliceBytes(count))))),
        sizes,
      );
      assert.deepEqual(
        events,
        counts.map((count) => ({ type: "ADDED", object: readProtobuf(encodeObject(SLICES, sliceBytes(count))) })),
      );
      assert.equal(body.pendingBytes, 0);
    }),
  );
});

test("no bytes do more than be refused", () => {
  const whole = encodeList(SLICES, { resourceVersion: "7" }, [1, 2, 3].map(sliceBytes));
  const event = encodeEvent("ADDED", encodeObject(SLICES, sliceBytes(2)));
  const changed = fc.tuple(fc.nat(), fc.nat({ max: 255 }));
  const refused = (act: () => void): void => {
    try {
      act();
    } catch (error) {
      assert.ok(error instanceof FormatError, String(error));
    }
  };
  fc.assert(
    fc.property(
      fc.array(changed, { minLength: 1, maxLength: 4 }),
      fc.uint8Array({ maxLength: 60 }),
      (changes, random) => {
        for (const original of [whole, event, encodeObject(SLICES, sliceBytes(2)), Buffer.from(random)]) {
          const bytes = Buffer.from(original);
          for (const [at, byte] of changes) if (bytes.length > 0) bytes[at % bytes.length] = byte;
          refused(() => PROTOBUF_FORMAT.read(bytes));
          refused(() => PROTOBUF_FORMAT.events(() => {}).push(bytes));
          refused(() => {
            const list = PROTOBUF_FORMAT.list(() => {});
            list.push(bytes);
            list.end();
          });
        }
      },
    ),
    { numRuns: 1_000 },
  );
});

for (const [what, bytes, expected] of [
  ["JSON", Buffer.from('{"kind":"ServiceList"}'), /not a list in Kubernetes' protobuf/],
  ["another magic number", Buffer.from("k8t\0\n\0"), /not a list in Kubernetes' protobuf/],
  ["nothing", Buffer.alloc(0), /ends in the middle of the list/],
  ["a group", Buffer.from("k8s\0\x0b\x0c"), /not a list/],
  ["a list of an unknown kind", encodeList({ kind: "Pod", apiVersion: V1 }, {}, []), /unknown kind "Pod"/],
  ["half a list", encodeList(SLICES, {}, [sliceBytes(1)]).subarray(0, 60), /ends in the middle of the list/],
] as const) {
  test(`${what} is no list`, () => {
    const list = PROTOBUF_FORMAT.list(() => {});
    assert.throws(() => {
      list.push(bytes);
      list.end();
    }, expected);
  });
}

test("content that is encoded once more is refused", () => {
  const envelope = { typeMeta: { apiVersion: V1, kind: "Service" }, raw: Buffer.from("x"), contentEncoding: "gzip" };
  const bytes = Buffer.concat([Buffer.from("k8s\0"), encodeMessage("Unknown", envelope)]);
  assert.throws(() => PROTOBUF_FORMAT.read(bytes), /unknown encoding "gzip"/);
  const list = PROTOBUF_FORMAT.list(() => {});
  const listed = { ...envelope, typeMeta: { apiVersion: V1, kind: "ServiceList" }, raw: Buffer.from([0x0a, 0]) };
  const sent = Buffer.concat([Buffer.from("k8s\0"), encodeMessage("Unknown", listed)]);
  assert.throws(() => list.push(sent), /unknown encoding "gzip"/);
});

test("an event that would be too large is refused by its length", () => {
  const events = PROTOBUF_FORMAT.events(() => {});
  assert.throws(() => events.push(Buffer.from([4, 0, 0, 1])), /no protobuf: a part of it would have 67108865 bytes/);
});

test("the format is the one that the answer names", () => {
  assert.equal(formatOf("application/vnd.kubernetes.protobuf;stream=watch"), PROTOBUF_FORMAT);
  assert.notEqual(formatOf("application/json"), PROTOBUF_FORMAT);
  assert.notEqual(formatOf(""), undefined);
  for (const other of ["text/html", "application/yaml", "application/cbor"]) assert.equal(formatOf(other), undefined);
});

test("what a client prefers is the first type that this program reads", () => {
  const protobuf = "application/vnd.kubernetes.protobuf";
  for (const types of [protobuf, `${protobuf},application/json`, `application/cbor, ${protobuf};q=0.9`]) {
    assert.equal(prefersProtobuf(types), true, types);
  }
  for (const types of ["application/json", `application/json,${protobuf}`, "application/yaml", ""]) {
    assert.equal(prefersProtobuf(types), false, types);
  }
});
