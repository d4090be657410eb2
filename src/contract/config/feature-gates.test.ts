import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type FeatureGates, findGate, gatesOf, LOCALHOST_NODE_PORTS_GATE, setFeatureGates } from "./feature-gates.ts";
import { KNOWN_GATES } from "./known-feature-gates.ts";

function gatesWith(wanted: Readonly<Record<string, boolean>>): FeatureGates {
  const result = setFeatureGates(wanted);
  assert.ok(result.ok);
  return result.gates;
}

const errorOf = (wanted: Readonly<Record<string, boolean>>): string => {
  const result = setFeatureGates(wanted);
  return result.ok ? "" : result.error;
};

describe("feature gates", () => {
  it("have the defaults, stages and locks of v1.37", () => {
    const expected: readonly (readonly [string, boolean, string, boolean])[] = [
      ["AllowServiceExternalIPs", true, "GA", false],
      ["ComponentFlagz", true, "Beta", false],
      ["ComponentStatusz", true, "Beta", false],
      ["MultiCIDRServiceAllocator", true, "GA", true],
      ["PreferSameTrafficDistribution", true, "GA", true],
      ["NFTablesProxyMode", true, "GA", true],
      ["WinDSR", true, "GA", true],
      ["WinOverlay", true, "GA", true],
      ["NativeHistograms", true, "Beta", false],
      ["KubeProxyNFTablesLocalhostNodePorts", false, "Alpha", false],
      ["NFTablesNetlink", true, "Beta", false],
      ["KubeProxyIPVS", true, "Deprecated", false],
      ["MemoryQoS", true, "Beta", false],
      ["DRADeviceTaints", true, "GA", false],
      ["HPAConfigurableTolerance", true, "GA", true],
      ["ContextualLogging", true, "Beta", false],
      ["LoggingAlphaOptions", false, "Alpha", false],
      ["LoggingBetaOptions", true, "Beta", false],
      ["WatchListClient", true, "Beta", false],
      ["InOrderInformers", true, "GA", true],
      ["AtomicFIFO", true, "Beta", false],
      ["InOrderInformersBatchProcess", true, "Beta", false],
      ["UnlockWhileProcessingFIFO", true, "Beta", false],
      ["ClientsAllowCBOR", false, "Alpha", false],
      ["ClientsPreferCBOR", false, "Alpha", false],
      ["ClientsAllowCARotation", true, "Beta", false],
      ["ClientsAllowTLSCacheGC", true, "Beta", false],
    ];
    const gates = gatesWith({});
    for (const [name, enabled, stage, locked] of expected) {
      const spec = findGate(name);
      assert.deepEqual([spec?.default, spec?.stage, spec?.locked], [enabled, stage, locked], name);
      assert.equal(gates.isEnabled(name), enabled, name);
    }
  });

  it("follow the release in the one default that is ours to follow", () => {
    const on = (compatibility: string, featureGates = {}) =>
      gatesOf({ compatibility, featureGates }).isEnabled(LOCALHOST_NODE_PORTS_GATE);
    assert.deepEqual(
      ["v1.36", "v1.37", "v1.38"].map((name) => on(name)),
      [false, false, true],
    );
    assert.equal(on("v1.36", { AllAlpha: true }), true);
    assert.equal(on("v1.38", { AllBeta: false }), false);
    assert.equal(on("v1.38", { [LOCALHOST_NODE_PORTS_GATE]: false }), false);
  });

  it("are each listed once", () => {
    const names = KNOWN_GATES.flatMap((group) => group.names.trim().split(/\s+/));
    assert.equal(new Set(names).size, names.length);
    assert.equal(gatesWith({}).list().length, names.length);
  });

  it("may be set when known, and to their default even when locked", () => {
    assert.equal(gatesWith({ AllowServiceExternalIPs: false }).isEnabled("AllowServiceExternalIPs"), false);
    assert.equal(gatesWith({ MultiCIDRServiceAllocator: true }).isEnabled("MultiCIDRServiceAllocator"), true);
    assert.equal(gatesWith({ HPAScaleToZero: true }).isEnabled("HPAScaleToZero"), true);
  });

  it("are refused when unknown or locked", () => {
    assert.equal(errorOf({ Foo: true }), "unrecognized feature gate: Foo");
    assert.equal(errorOf({ toString: true }), "unrecognized feature gate: toString");
    assert.equal(
      errorOf({ MultiCIDRServiceAllocator: false }),
      "cannot set feature gate MultiCIDRServiceAllocator to false, feature is locked to true",
    );
  });

  it("follow the bulk switches unless they are set themselves", () => {
    const alpha = gatesWith({ AllAlpha: true, QOSReserved: false });
    assert.equal(alpha.isEnabled("ClientsAllowCBOR"), true);
    assert.equal(alpha.isEnabled("QOSReserved"), false);
    assert.equal(alpha.isEnabled("ComponentFlagz"), true);
    const beta = gatesWith({ AllBeta: false, WatchListClient: true });
    assert.equal(beta.isEnabled("ComponentFlagz"), false);
    assert.equal(beta.isEnabled("WatchListClient"), true);
    assert.equal(beta.isEnabled("AllowServiceExternalIPs"), true);
    assert.equal(beta.isEnabled("AllAlpha"), false);
  });

  it("warn when a gate that is no choice any more is set", () => {
    const result = setFeatureGates({ WinDSR: true, KMSv1: true, ComponentFlagz: true });
    assert.ok(result.ok);
    assert.deepEqual(result.notices, [
      {
        message: "Warning: setting deprecated feature gate. It will be removed in a future release.",
        facts: { featureGate: "KMSv1", value: true },
      },
      {
        message: "Warning: setting GA feature gate. It will be removed in a future release.",
        facts: { featureGate: "WinDSR", value: true },
      },
    ]);
  });
});
