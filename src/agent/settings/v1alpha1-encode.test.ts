import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import type { DraftConfig, LogOutput } from "../../contract/config/config.ts";
import { parseQuantity } from "../../contract/config/quantity.ts";
import { toFloat32 } from "../../text/go-text.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "./defaults.ts";
import { decodeConfiguration } from "./v1alpha1-decode.ts";
import { encodeYaml, toV1Alpha1 } from "./v1alpha1-encode.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
const DEFAULTS = applyPlatformDefaults(resolveDocument(EMPTY_DOCUMENT));

const DEFAULT_YAML = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 10
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: ""
  qps: 5
clusterCIDR: ""
configSyncPeriod: 15m0s
conntrack:
  maxPerCore: 32768
  min: 131072
  tcpBeLiberal: false
  tcpCloseWaitTimeout: 1h0m0s
  tcpEstablishedTimeout: 24h0m0s
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ClusterCIDR
enableProfiling: false
healthzBindAddress: 0.0.0.0:10256
hostnameOverride: ""
iptables:
  localhostNodePorts: true
  masqueradeAll: false
  masqueradeBit: 14
  minSyncPeriod: 1s
  syncPeriod: 30s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 5s
  format: text
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: 127.0.0.1:10249
mode: iptables
nftables:
  masqueradeAll: false
  masqueradeBit: 14
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: -999
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
`;

describe("encodeYaml", () => {
  it("writes the defaults exactly as upstream does", async () => {
    assert.equal(await encodeYaml(DEFAULTS), DEFAULT_YAML);
  });

  it("writes the periods of nftables mode into its section alone", async () => {
    const { document } = decodeConfiguration(`${HEAD}mode: nftables\n`);
    const expected = DEFAULT_YAML.replace("mode: iptables", "mode: nftables")
      .replace("minSyncPeriod: 1s\n  syncPeriod: 30s", "minSyncPeriod: 0s\n  syncPeriod: 0s")
      .replace(
        /(nftables:\n.*\n.*\n) {2}minSyncPeriod: 0s\n {2}syncPeriod: 0s/,
        "$1  minSyncPeriod: 1s\n  syncPeriod: 30s",
      )
      .replace("nodePortAddresses: null", "nodePortAddresses:\n- primary");
    assert.equal(await encodeYaml(applyPlatformDefaults(resolveDocument(document))), expected);
  });

  it("writes the fields of userspace mode in that mode, or where they differ from the defaults", async () => {
    const yamlOf = (body: string) =>
      encodeYaml(applyPlatformDefaults(resolveDocument(decodeConfiguration(HEAD + body).document)));
    const shown = async (body: string) =>
      (await yamlOf(body)).match(/^(portRange|udpIdleTimeout|userspace| {2}(drainTimeout|rules)):.*$/gm);
    assert.deepEqual(await shown("mode: userspace\n"), [
      'portRange: ""',
      "udpIdleTimeout: 250ms",
      "userspace:",
      "  drainTimeout: 10s",
      "  rules: iptables",
    ]);
    assert.deepEqual(await shown("portRange: 300+20\nudpIdleTimeout: 2s\nuserspace: {rules: none, drainTimeout: 0s}"), [
      "portRange: 300+20",
      "udpIdleTimeout: 2s",
      "userspace:",
      "  drainTimeout: 0s",
      "  rules: none",
    ]);
    assert.deepEqual(await shown("mode: nftables\n"), ['portRange: ""']);
  });

  it("writes what is left out by default only when it is set, and quotes as upstream quotes", async () => {
    const { document } = decodeConfiguration(`${HEAD}bindAddress: "::"
featureGates: {WinDSR: true, AllAlpha: false}
hostnameOverride: "yes"
clusterCIDR: "1:30"
windowsRunAsService: true
windowsPriorityClass: HIGH_PRIORITY_CLASS
logging:
  flushFrequency: 7
  vmodule: [{filePattern: "a*", verbosity: 3}]
  options: {json: {splitStream: true, infoBufferSize: 2048}}
`);
    const text = await encodeYaml(resolveDocument(document));
    for (const part of [
      "bindAddress: '::'\n",
      "healthzBindAddress: '[::]:10256'\n",
      "featureGates:\n  AllAlpha: false\n  WinDSR: true\n",
      'hostnameOverride: "yes"\n',
      'clusterCIDR: "1:30"\n',
      "windowsRunAsService: true\n",
      "windowsPriorityClass: HIGH_PRIORITY_CLASS\n",
      "  flushFrequency: 7\n",
      "  vmodule:\n  - filePattern: a*\n    verbosity: 3\n",
      '    json:\n      infoBufferSize: "2048"\n      splitStream: true\n',
    ]) {
      assert.ok(text.includes(part), `${part} in ${text}`);
    }
  });
});

describe("toV1Alpha1", () => {
  it("keeps the order of the API type", () => {
    const text = JSON.stringify(toV1Alpha1(DEFAULTS));
    assert.match(
      text,
      /^\{"kind":"KubeProxyConfiguration","apiVersion":"kubeproxy\.config\.k8s\.io\/v1alpha1","clientConnection":/,
    );
    const names = [
      ...text.matchAll(/"(logging|mode|iptables|ipvs|nftables|winkernel|detectLocalMode|conntrack|portRange)":/g),
    ];
    assert.deepEqual(
      names.map((match) => match[1]),
      ["logging", "mode", "iptables", "ipvs", "nftables", "winkernel", "detectLocalMode", "conntrack", "portRange"],
    );
    assert.match(
      text,
      /"masqueradeBit":14,"masqueradeAll":false,"localhostNodePorts":true,"syncPeriod":"30s","minSyncPeriod":"1s"/,
    );
    assert.match(text, /"nodePortAddresses":null,"oomScoreAdj":-999/);
  });
});

const words = fc.oneof(
  fc.string(),
  fc.string({ unit: "grapheme" }),
  fc.constantFrom(
    "",
    "yes",
    "null",
    "~",
    "0x10",
    "1:30",
    "- a",
    "a: b",
    "#",
    "'",
    '"',
    "[::]:1",
    "a\nb",
    " x ",
    "<<",
    "2001-01-01",
  ),
);
const nonEmpty = words.filter((text) => text !== "");
const wholeMs = fc.integer({ min: 1, max: 10 ** 10 });
const bit = fc.integer({ min: -100, max: 100 });
const output: fc.Arbitrary<LogOutput> = fc.record({
  splitStream: fc.boolean(),
  infoBufferSize: fc.nat().map((bytes) => {
    const read = parseQuantity(`${bytes}`);
    return read.ok ? read.value : { text: "0", bytes: 0 };
  }),
});
const float32 = fc.float({ noNaN: true, noDefaultInfinity: true }).filter((value) => value !== 0);

/** Any configuration that a file can give: fields with a default are never zero, addresses are complete. */
const anyConfig: fc.Arbitrary<DraftConfig> = fc.record({
  featureGates: fc.dictionary(fc.stringMatching(/^[A-Z][A-Za-z]*$/), fc.boolean(), { noNullPrototype: true }),
  clientConnection: fc.record({
    kubeconfig: words,
    acceptContentTypes: words,
    contentType: nonEmpty,
    qps: float32.map(toFloat32),
    burst: fc.integer().filter((value) => value !== 0),
  }),
  logging: fc.record({
    format: nonEmpty,
    flushFrequencyMs: wholeMs,
    flushFrequencyAsText: fc.boolean(),
    verbosity: fc.nat(),
    vmodule: fc.array(fc.record({ filePattern: words, verbosity: fc.nat() }), { maxLength: 2 }),
    options: fc.record({ text: output, json: output }),
  }),
  compatibility: fc.constantFrom("v1.36", "v1.37", "v1.38"),
  connections: fc.record({
    ...{ endTCP: fc.constantFrom("Gone", "Never", "x"), endTCPAfterMs: wholeMs },
    ...{
      count: fc.constantFrom("None", "Frontends", "Endpoints", "x"),
      countedServices: fc.nat(),
      answerCheckPeriodMs: wholeMs,
      leaveUnanswered: fc.boolean(),
      ...{ leaveAtMost: fc.integer({ min: 1 }), leaveAtMostNodes: fc.integer({ min: 1 }) },
      leaveForMs: wholeMs,
      leaveForAtMostMs: wholeMs,
    },
  }),
  balancing: fc.record({ seed: fc.integer({ min: 1, max: 2 ** 32 - 1 }) }),
  hostnameOverride: words,
  bindAddress: fc.oneof(fc.ipV4(), fc.constantFrom("::", "fd00::1", "x")),
  healthzBindAddress: fc.constantFrom("1.2.3.4:5", "[::]:10256", "nonsense"),
  metricsBindAddress: fc.constantFrom("127.0.0.1:1", "[::1]:2"),
  bindAddressHardFail: fc.boolean(),
  enableProfiling: fc.boolean(),
  showHiddenMetricsForVersion: words,
  mode: fc.constantFrom("iptables", "ipvs", "nftables", "userspace", "ebpf", "other"),
  syncPeriodMs: wholeMs,
  minSyncPeriodMs: wholeMs,
  masqueradeAll: fc.boolean(),
  iptables: fc.record({ masqueradeBit: bit, localhostNodePorts: fc.boolean() }),
  ipvs: fc.record({
    scheduler: words,
    excludeCIDRs: fc.array(words, { maxLength: 3 }),
    strictARP: fc.boolean(),
    tcpTimeoutMs: fc.integer(),
    tcpFinTimeoutMs: fc.integer(),
    udpTimeoutMs: fc.integer(),
  }),
  nftables: fc.record({
    masqueradeBit: bit,
    layout: fc.constantFrom("Compatible", "Flat"),
  }),
  userspace: fc.record({
    portRange: words,
    udpIdleTimeoutMs: wholeMs,
    rules: nonEmpty,
    drainTimeoutMs: fc.nat(),
  }),
  ebpf: fc.record({
    masqueradeBit: bit,
    cgroupRoot: words,
    pinFolder: words,
    hostNamespaceOnly: fc.boolean(),
    holdNodePorts: fc.boolean(),
    validForMs: wholeMs,
    rememberedSockets: fc.integer({ min: -100, max: 2 ** 30 }),
  }),
  winkernel: fc.record({
    networkName: words,
    sourceVip: words,
    enableDSR: fc.boolean(),
    rootHnsEndpointName: words,
    forwardHealthCheckVip: fc.boolean(),
  }),
  detectLocalMode: words,
  detectLocal: fc.record({
    bridgeInterface: words,
    interfaceNamePrefix: words,
    clusterCIDRs: fc.array(fc.constantFrom("10.0.0.0/8", " fd00::/8", "zz"), { maxLength: 3 }),
  }),
  nodePortAddresses: fc.array(words, { maxLength: 3 }),
  oomScoreAdj: fc.integer(),
  conntrack: fc.record({
    maxPerCore: fc.integer(),
    min: fc.integer(),
    tcpEstablishedTimeoutMs: fc.integer(),
    tcpCloseWaitTimeoutMs: fc.integer(),
    tcpBeLiberal: fc.boolean(),
    udpTimeoutMs: fc.integer(),
    udpStreamTimeoutMs: fc.integer(),
  }),
  configSyncPeriodMs: wholeMs,
  windowsRunAsService: fc.boolean(),
  windowsPriorityClass: words,
});

describe("encoding and decoding", () => {
  it("gives texts back that the reader would take for numbers, also those of Go alone", async () => {
    for (const text of "0o17 0b11 0x1f 1e3 .5e3 08 1_0 +1 .inf y null ~ 2026-11-27".split(" ")) {
      const config = { ...resolveDocument(EMPTY_DOCUMENT), hostnameOverride: text };
      assert.equal(decodeConfiguration(await encodeYaml(config)).document.hostnameOverride, text);
    }
  });

  it("gives every configuration back, through YAML and through JSON", async () => {
    await fc.assert(
      fc.asyncProperty(anyConfig, async (config) => {
        // The generator may make objects without a prototype.
        const expected = structuredClone(config);
        const fromYaml = decodeConfiguration(await encodeYaml(config));
        assert.equal(fromYaml.strictError, undefined);
        assert.deepEqual(resolveDocument(fromYaml.document), expected);
        const json = JSON.stringify(toV1Alpha1(config));
        assert.deepEqual(resolveDocument(decodeConfiguration(json).document), expected);
      }),
      { numRuns: 60 },
    );
  });
});
