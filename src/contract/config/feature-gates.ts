/** The known feature gates, and which of them are on. Reference start.md §2.8. */
import { type GateStage, KNOWN_GATES } from "./known-feature-gates.ts";
import { CURRENT_RELEASE, type Release, releaseOf } from "./release.ts";

/** A gate before the user sets anything. */
interface GateSpec {
  readonly stage: GateStage;
  readonly default: boolean;
  /** A locked gate can only be set to its default. */
  readonly locked: boolean;
}

/** A gate with its effective value, as the metric `kubernetes_feature_enabled` shows it. */
export interface GateState {
  readonly name: string;
  readonly stage: GateStage;
  readonly enabled: boolean;
}

export interface FeatureGates {
  /** Whether a gate is on; an unknown name is off. */
  isEnabled(name: string): boolean;
  /** Every known gate, sorted by name, including the two bulk switches, as upstream. */
  list(): readonly GateState[];
}

/** A line to log for a gate that was set although users can no longer choose. */
interface GateNotice {
  readonly message: string;
  readonly facts: { readonly featureGate: string; readonly value: boolean };
}

type GatesResult =
  | { readonly ok: true; readonly gates: FeatureGates; readonly notices: readonly GateNotice[] }
  | { readonly ok: false; readonly error: string };

/** Whether node ports answer on loopback addresses in nftables mode (KEP-6032). */
export const LOCALHOST_NODE_PORTS_GATE = "KubeProxyNFTablesLocalhostNodePorts";

/** The switches of whole stages; they are gates of these stages themselves. */
const BULK: Partial<Readonly<Record<GateStage, string>>> = { Alpha: "AllAlpha", Beta: "AllBeta" };

const SPECS: ReadonlyMap<string, GateSpec> = new Map(
  KNOWN_GATES.flatMap((group) =>
    group.names
      .trim()
      .split(/\s+/)
      .map((name) => [name, group] as const),
  ),
);

/** A gate in the release that turned it on; it was alpha and off before. */
const TURNED_ON: GateSpec = { stage: "Beta", default: true, locked: false };

function specsOf(release: Release): ReadonlyMap<string, GateSpec> {
  return release.localhostNodePorts ? new Map([...SPECS, [LOCALHOST_NODE_PORTS_GATE, TURNED_ON]]) : SPECS;
}

/** @returns the stage, default and lock of a gate, or `undefined` for an unknown name. */
export function findGate(name: string, release: Release = CURRENT_RELEASE): GateSpec | undefined {
  return specsOf(release).get(name);
}

/**
 * Applies the gates that a user set. Any known gate may be set; a value for one gate wins over `AllAlpha`/`AllBeta`.
 *
 * @returns the effective gates, or `unrecognized feature gate: X` / `cannot set feature gate X to false, feature is
 * locked to true`; of several errors, which upstream reports in no fixed order, the first by name.
 */
export function setFeatureGates(
  wanted: Readonly<Record<string, boolean>>,
  release: Release = CURRENT_RELEASE,
): GatesResult {
  const specs = specsOf(release);
  const notices: GateNotice[] = [];
  for (const name of Object.keys(wanted).sort()) {
    const value = wanted[name] === true;
    const spec = specs.get(name);
    if (spec === undefined) return { ok: false, error: `unrecognized feature gate: ${name}` };
    if (spec.locked && spec.default !== value) {
      return {
        ok: false,
        error: `cannot set feature gate ${name} to ${value}, feature is locked to ${spec.default}`,
      };
    }
    if (spec.stage === "GA" || spec.stage === "Deprecated") {
      const word = spec.stage === "GA" ? "GA" : "deprecated";
      notices.push({
        message: `Warning: setting ${word} feature gate. It will be removed in a future release.`,
        facts: { featureGate: name, value },
      });
    }
  }
  return { ok: true, gates: makeGates(wanted, specs), notices };
}

/** The gates of settings that have passed the checks. @throws Error for settings that have not. */
export function gatesOf(config: {
  readonly featureGates: Readonly<Record<string, boolean>>;
  readonly compatibility: string;
}): FeatureGates {
  const result = setFeatureGates(config.featureGates, releaseOf(config));
  if (!result.ok) throw new Error(result.error);
  return result.gates;
}

function makeGates(wanted: Readonly<Record<string, boolean>>, specs: ReadonlyMap<string, GateSpec>): FeatureGates {
  const set = new Map(Object.entries(wanted));
  const states = Array.from(specs, ([name, { stage, default: initial }]): GateState => {
    return { name, stage, enabled: set.get(name) ?? set.get(BULK[stage] ?? "") ?? initial };
  }).sort((a, b) => (a.name < b.name ? -1 : 1));
  const on = new Set(states.flatMap(({ name, enabled }) => (enabled ? [name] : [])));
  return { isEnabled: (name) => on.has(name), list: () => states };
}
