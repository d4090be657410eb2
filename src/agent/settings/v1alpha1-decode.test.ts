import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ConfigDecodeError, decodeConfiguration } from "./v1alpha1-decode.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

function failure(text: string): string {
  try {
    decodeConfiguration(text);
  } catch (error) {
    assert.ok(error instanceof ConfigDecodeError);
    return error.message.replace(/^failed to decode: /, "");
  }
  return "decoded";
}

const failureOf = (body: string): string => failure(HEAD + body);
const strictErrorOf = (body: string): string | undefined => decodeConfiguration(HEAD + body).strictError;
const documentOf = (body: string) => decodeConfiguration(HEAD + body).document;

describe("decodeConfiguration: kind and version", () => {
  it("names what is missing and shows the text", () => {
    const advice = "it must have apiVersion: kubeproxy.config.k8s.io/v1alpha1 and kind: KubeProxyConfiguration";
    assert.equal(failure(""), `Object 'Kind' is missing in ''; ${advice}`);
    assert.equal(failure("mode: ipvs\n"), `Object 'Kind' is missing in 'mode: ipvs\n'; ${advice}`);
    assert.equal(failure("kind: X"), `Object 'apiVersion' is missing in 'kind: X'; ${advice}`);
  });

  it("refuses other kinds and versions", () => {
    assert.match(
      failure("kind: Foo\napiVersion: kubeproxy.config.k8s.io/v1alpha1"),
      /^no kind "Foo" is registered for version "kubeproxy.config.k8s.io\/v1alpha1" in scheme ".+"$/,
    );
    assert.match(failure("kind: KubeProxyConfiguration\napiVersion: v1"), /^no kind .* for version "v1"/);
    assert.equal(failure("kind: K\napiVersion: a/b/c"), "unexpected GroupVersion string: a/b/c");
  });

  it("refuses a text that is no object, and one that is no YAML or JSON", () => {
    assert.match(failure("- a"), /^couldn't get version\/kind; json parse error: json: cannot unmarshal array into/);
    assert.match(failure("a: ["), /^yaml: line 1: /);
    assert.match(failure('{"kind": }'), /^couldn't get version\/kind; json parse error: /);
  });

  it("reads only the first document", () => {
    assert.equal(documentOf("mode: ipvs\n---\nmode: [\n").mode, "ipvs");
  });

  it("reads JSON, also with tabs", () => {
    const text =
      '{\n\t"kind": "KubeProxyConfiguration",\n\t"apiVersion": "kubeproxy.config.k8s.io/v1alpha1",\n\t"mode": "nftables"\n}';
    const decoded = decodeConfiguration(text);
    assert.equal(decoded.document.mode, "nftables");
    assert.equal(decoded.strictError, undefined);
  });
});

describe("decodeConfiguration: strictness", () => {
  it("names unknown fields with their path and drops them", () => {
    assert.equal(
      strictErrorOf("bogus: 1\nmode: ipvs\nlogging:\n  vmodule:\n  - x: 1\nconntrack:\n  zzz: 1\nMode: a\n"),
      'strict decoding error: unknown field "Mode", unknown field "bogus", unknown field "conntrack.zzz", unknown field "logging.vmodule[0].x"',
    );
    assert.equal(documentOf("bogus: 1\nmode: ipvs").mode, "ipvs");
  });

  it("knows names of JavaScript's objects for unknown fields too", () => {
    assert.equal(strictErrorOf("toString: 1\n"), 'strict decoding error: unknown field "toString"');
  });

  it("names repeated keys with their line, and the last one wins", () => {
    const body = "mode: iptables\nmode: ipvs\niptables:\n  syncPeriod: 1s\n  syncPeriod: 2s\n";
    assert.equal(
      strictErrorOf(body),
      'strict decoding error: yaml: unmarshal errors:\n  line 4: key "mode" already set in map\n  line 7: key "syncPeriod" already set in map',
    );
    assert.equal(documentOf(body).mode, "ipvs");
    assert.equal(documentOf(body).iptables.syncPeriod, 2_000_000_000n);
  });

  it("names repeated keys of JSON", () => {
    const text =
      '{"kind":"KubeProxyConfiguration","apiVersion":"kubeproxy.config.k8s.io/v1alpha1","mode":"a","mode":"b"}';
    assert.equal(decodeConfiguration(text).strictError, 'strict decoding error: duplicate field "mode"');
    assert.equal(decodeConfiguration(text).document.mode, "b");
  });

  it("accepts the fields of userspace mode, and others of older releases leniently", () => {
    assert.equal(strictErrorOf('portRange: ""\nudpIdleTimeout: 1s\nuserspace: {rules: none}'), undefined);
    assert.match(strictErrorOf("enableProfiling: true\nresourceContainer: x") ?? "", /resourceContainer/);
  });
});

describe("decodeConfiguration: types", () => {
  const wrong = (kind: string, field: string, type: string) =>
    `json: cannot unmarshal ${kind} into Go struct field ${field} of type ${type}`;

  it("refuses wrong types in upstream's words", () => {
    const cases: readonly (readonly [string, string])[] = [
      ["mode: 5", wrong("number", "KubeProxyConfiguration.mode", "v1alpha1.ProxyMode")],
      ["mode: yes", wrong("bool", "KubeProxyConfiguration.mode", "v1alpha1.ProxyMode")],
      ["detectLocalMode: []", wrong("array", "KubeProxyConfiguration.detectLocalMode", "v1alpha1.LocalMode")],
      ["bindAddressHardFail: 'true'", wrong("string", "KubeProxyConfiguration.bindAddressHardFail", "bool")],
      ["iptables: []", wrong("array", "KubeProxyConfiguration.iptables", "v1alpha1.KubeProxyIPTablesConfiguration")],
      ["conntrack: 5", wrong("number", "KubeProxyConfiguration.conntrack", "v1alpha1.KubeProxyConntrackConfiguration")],
      [
        "iptables: {masqueradeBit: a}",
        wrong("string", "KubeProxyIPTablesConfiguration.iptables.masqueradeBit", "int32"),
      ],
      ["oomScoreAdj: 1.5", wrong("number 1.5", "KubeProxyConfiguration.oomScoreAdj", "int32")],
      ["oomScoreAdj: 2147483648", wrong("number 2147483648", "KubeProxyConfiguration.oomScoreAdj", "int32")],
      ["balancing: {seed: 4294967296}", wrong("number 4294967296", "BalancingConfiguration.balancing.seed", "uint32")],
      ["balancing: {seed: -1}", wrong("number -1", "BalancingConfiguration.balancing.seed", "uint32")],
      ["clientConnection: {qps: x}", wrong("string", "ClientConnectionConfiguration.clientConnection.qps", "float32")],
      ["nodePortAddresses: a", wrong("string", "KubeProxyConfiguration.nodePortAddresses", "[]string")],
      ["nodePortAddresses: [a, 1]", wrong("number", "KubeProxyConfiguration.nodePortAddresses", "string")],
      ["featureGates: {A: 1}", wrong("number", "KubeProxyConfiguration.featureGates", "bool")],
      ["featureGates: [A]", wrong("array", "KubeProxyConfiguration.featureGates", "map[string]bool")],
      ["logging: {vmodule: [{filePattern: 1}]}", wrong("number", "VModuleItem.logging.vmodule.filePattern", "string")],
      ["logging: {verbosity: -1}", wrong("number -1", "LoggingConfiguration.logging.verbosity", "v1.VerbosityLevel")],
      ["iptables: {syncPeriod: 10}", wrong("number", "KubeProxyIPTablesConfiguration.iptables.syncPeriod", "string")],
    ];
    for (const [body, message] of cases) assert.equal(failureOf(body), message, body);
  });

  it("reports the problem that its sorted keys meet first, as upstream does", () => {
    assert.match(failureOf("mode: 1\nconntrack: 2\n"), /KubeProxyConfiguration\.conntrack/);
    assert.match(failureOf("nodePortAddresses: [a, 1]\nnftables: 3\n"), /KubeProxyConfiguration\.nftables/);
    assert.match(failureOf("iptables: {syncPeriod: 1, masqueradeBit: a}"), /masqueradeBit/);
  });

  it("takes YAML 1.1 booleans, and leaves times and dates as text", () => {
    assert.equal(documentOf("bindAddressHardFail: yes").bindAddressHardFail, true);
    assert.equal(documentOf("enableProfiling: On").enableProfiling, true);
    assert.equal(documentOf("clusterCIDR: 2001-01-01").clusterCIDR, "2001-01-01");
    assert.equal(documentOf("hostnameOverride: 1:30").hostnameOverride, "1:30");
  });

  it("takes null for everything but a plain duration", () => {
    const body = `featureGates: null\nlogging: null\nmode: null\niptables: {masqueradeBit: null, localhostNodePorts: null}
nodePortAddresses: null\noomScoreAdj: null\nconntrack: {tcpEstablishedTimeout: null, min: null, tcpBeLiberal: null}`;
    const document = documentOf(body);
    assert.equal(document.mode, "");
    assert.deepEqual(document.nodePortAddresses, []);
    for (const [body, field] of [
      ["configSyncPeriod: null", "configSyncPeriod"],
      ["ipvs: {syncPeriod: null}", "ipvs.syncPeriod"],
      ["conntrack: {udpTimeout: ~}", "conntrack.udpTimeout"],
    ] as const) {
      assert.equal(failureOf(body), `time: invalid duration "" (field ${field})`);
    }
  });

  it("keeps explicit zeroes of pointer fields apart from absent ones", () => {
    assert.equal(documentOf("conntrack: {maxPerCore: 0}").conntrack.maxPerCore, 0);
    assert.equal(documentOf("conntrack: {}").conntrack.maxPerCore ?? undefined, undefined);
    assert.equal(documentOf("iptables: {masqueradeBit: 0}").iptables.masqueradeBit, 0);
  });

  it("refuses bad durations and quantities", () => {
    assert.equal(
      failureOf("configSyncPeriod: 10x"),
      'time: unknown unit "x" in duration "10x" (field configSyncPeriod)',
    );
    assert.equal(
      failureOf("nftables: {minSyncPeriod: 1sec}"),
      'time: unknown unit "sec" in duration "1sec" (field nftables.minSyncPeriod)',
    );
    assert.match(failureOf("logging: {options: {text: {infoBufferSize: zz}}}"), /^quantities must match/);
  });

  it("takes the flush frequency as text or as nanoseconds", () => {
    const frequency = (value: string) => documentOf(`logging: {flushFrequency: ${value}}`).logging.flushFrequency;
    assert.deepEqual(frequency("7s"), { nanoseconds: 7_000_000_000n, asText: true });
    assert.deepEqual(frequency("7"), { nanoseconds: 7n, asText: false });
    assert.equal(
      failureOf("logging: {flushFrequency: true}"),
      'invalid duration "true": json: cannot unmarshal bool into Go value of type time.Duration (field logging.flushFrequency)',
    );
  });
});
