/** What upstream's reader (sigs.k8s.io/yaml over YAML 1.1, then Go's JSON) accepts and rejects beyond plain YAML. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFeatureGates } from "../../contract/config/feature-gates.ts";
import { gatesType } from "../../contract/config/flag-types.ts";
import { parseCidr } from "../../net/ip.ts";
import { parseGoFloat32 } from "../../text/go-text.ts";
import { ConfigDecodeError, decodeConfiguration } from "./v1alpha1-decode.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

function failureOf(body: string | Uint8Array): string {
  try {
    decodeConfiguration(typeof body === "string" ? HEAD + body : body);
  } catch (error) {
    assert.ok(error instanceof ConfigDecodeError, String(error));
    return error.message;
  }
  return "decoded";
}

const documentOf = (body: string) => decodeConfiguration(HEAD + body).document;
const bytes = (...parts: (string | readonly number[])[]) =>
  Buffer.concat(parts.map((part) => Buffer.from(typeof part === "string" ? part : [...part])));

describe("configuration: octets", () => {
  it("refuses what is no UTF-8 and control characters", () => {
    for (const octets of [[0xff], [0xc3], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xe2, 0x82]]) {
      const file = bytes(`${HEAD}mode: "`, octets, '"');
      assert.equal(failureOf(file), "failed to decode: yaml: the file is not UTF-8 text");
    }
    for (const control of ["\u0000", "\u0001", "\u007f", "\u0081", "\uffff"]) {
      assert.equal(failureOf(`mode: "${control}"`), "failed to decode: yaml: control characters are not allowed");
    }
  });

  it("reads JSON whose texts are no UTF-8, as Go does", () => {
    const head = '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "';
    const file = bytes(head, [0xff], '"}');
    assert.equal(decodeConfiguration(file).document.mode, "\ufffd");
  });

  it("reads UTF-16 in both orders, and UTF-8 with a byte order mark", () => {
    const little = Buffer.from(`\ufeff${HEAD}hostnameOverride: nö\n`, "utf16le");
    assert.equal(decodeConfiguration(little).document.hostnameOverride, "nö");
    assert.equal(decodeConfiguration(Buffer.from(little).swap16()).document.hostnameOverride, "nö");
    assert.equal(decodeConfiguration(bytes("\ufeff", HEAD, "mode: ipvs\n")).document.mode, "ipvs");
    assert.equal(failureOf(little.subarray(0, -1)), "failed to decode: yaml: the file is not UTF-16LE text");
  });

  it("takes a carriage return alone for a line end", () => {
    const text = `${HEAD}mode: ipvs\nipvs:\n  scheduler: rr\n`.replaceAll("\n", "\r");
    assert.equal(decodeConfiguration(text).document.ipvs.scheduler, "rr");
  });
});

describe("configuration: values", () => {
  it("reads integers in every base of Go, and underscores", () => {
    const bit = (text: string): unknown => documentOf(`iptables: {masqueradeBit: ${text}}`).iptables.masqueradeBit;
    assert.deepEqual(
      ["0o16", "016", "0xE", "0b1110", "1_4", "+14", "0x_e", "14.0", "1.4e+1"].map(bit),
      Array(9).fill(14),
    );
    assert.deepEqual(["08", "-0x2"].map(bit), [8, -2]);
    assert.match(
      failureOf("iptables: {masqueradeBit: 0o8}"),
      /cannot unmarshal string into .*masqueradeBit of type int32$/,
    );
    assert.match(failureOf("iptables: {masqueradeBit: 1:30}"), /cannot unmarshal string into /);
  });

  it("leaves a hexadecimal float in the file a text, but reads it in a flag", () => {
    assert.match(failureOf("clientConnection: {qps: 0x1p-2}"), /cannot unmarshal string into .*qps of type float32$/);
    const read = (text: string): unknown => {
      const result = parseGoFloat32(text);
      return result.ok ? result.value : "refused";
    };
    assert.deepEqual(
      ["0x1p-2", "1_0", "1_0.5", "-0x.8p1", "0x1_0p0", "5", ".5", "5.", "1e+1_0"].map(read),
      [0.25, 10, 10.5, -1, 16, 5, 0.5, 5, 1e10],
    );
    const refused = ["0x1", "1__0", "_1", "1_", "0xp1", "1_.5", "", ".", "1e", "0x1p"];
    assert.deepEqual(refused.map(read), Array(refused.length).fill("refused"));
  });

  it("refuses a flush frequency beyond 64 bits", () => {
    const flush = (text: string) => documentOf(`logging: {flushFrequency: ${text}}`).logging.flushFrequency.nanoseconds;
    assert.equal(flush("5000000000"), 5_000_000_000n);
    assert.ok(flush("9223372036854775807") > 9_223_372_036_000_000_000n);
    assert.match(
      failureOf("logging: {flushFrequency: 9223372036854775808}"),
      /^failed to decode: invalid duration "\d+": json: cannot unmarshal number \d+ into Go value of type time\.Duration \(field logging\.flushFrequency\)$/,
    );
    assert.match(
      failureOf("logging: {flushFrequency: 1e30}"),
      /cannot unmarshal number .* of type time\.Duration \(field logging\.flushFrequency\)$/,
    );
  });

  it("decodes !!binary", () => {
    assert.equal(documentOf("mode: !!binary aXB2cw==\n").mode, "ipvs");
    assert.equal(documentOf("mode: !!binary |\n  aXB2\n  cw==\n").mode, "ipvs");
    assert.equal(documentOf("mode: aXB2cw==\n").mode, "aXB2cw==");
    assert.equal(
      failureOf("mode: !!binary a\n"),
      "failed to decode: yaml: !!binary value contains invalid base64 data",
    );
  });
});

describe("configuration: maps and anchors", () => {
  it("refuses keys that are null, maps or lists", () => {
    assert.match(failureOf("? \n: a\n"), /^failed to decode: unsupported map key of type: <nil>/);
    assert.match(failureOf("~: a\n"), /^failed to decode: unsupported map key of type: <nil>/);
    assert.match(failureOf("? {a: b}\n: c\n"), /^failed to decode: yaml: invalid map key: /);
    assert.match(failureOf("mode: {? [a] : c}\n"), /^failed to decode: yaml: invalid map key: /);
    assert.match(
      decodeConfiguration(`${HEAD}1: a\ntrue: b\n`).strictError ?? "",
      /unknown field "1", unknown field "true"/,
    );
  });

  it("says what a recursive anchor is, and an unknown one", () => {
    assert.equal(failureOf("conntrack: &a {x: *a}\n"), "failed to decode: yaml: anchor 'a' value contains itself");
    assert.equal(failureOf("x: &a [[*a]]\n"), "failed to decode: yaml: anchor 'a' value contains itself");
    assert.equal(failureOf("mode: *a\n"), "failed to decode: yaml: unknown anchor 'a' referenced");
    const bomb = Array.from(
      { length: 9 },
      (_, n) => `l${n}: &l${n} [${`${n === 0 ? "x" : `*l${n - 1}`},`.repeat(9)}]\n`,
    );
    assert.equal(failureOf(bomb.join("")), "failed to decode: yaml: document contains excessive aliasing");
    assert.equal(documentOf("iptables: &a {syncPeriod: 7s}\nnftables: *a\n").nftables.syncPeriod, 7_000_000_000n);
  });

  it("knows no gate with the name of a part of JavaScript's objects", () => {
    for (const name of ["__proto__", "constructor", "prototype", "toString"]) {
      const { featureGates } = documentOf(`featureGates: {${name}: true}\n`);
      const result = setFeatureGates(featureGates);
      assert.equal(result.ok ? "taken" : result.error, `unrecognized feature gate: ${name}`);
      const flag = gatesType.read(`${name}=true`, {});
      assert.ok(flag.ok && Object.hasOwn(flag.value, name), `--feature-gates=${name}=true`);
    }
    assert.match(
      failureOf("featureGates: {__proto__: 1}\n"),
      /cannot unmarshal number into .*featureGates of type bool$/,
    );
    assert.match(decodeConfiguration(`${HEAD}__proto__: 1\n`).strictError ?? "", /unknown field "__proto__"/);
  });
});

it("an IPv4-mapped prefix is the IPv4 one", () => {
  assert.equal(parseCidr("::ffff:10.0.0.0/104"), "10.0.0.0/8");
  assert.equal(parseCidr("::ffff:10.1.2.3/128"), "10.1.2.3/32");
  assert.equal(parseCidr("::ffff:10.0.0.0/8"), undefined);
  assert.equal(parseCidr("::ffff:10.0.0.0/129"), undefined);
});
