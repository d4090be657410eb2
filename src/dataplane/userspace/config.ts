/**
 * The settings of the userspace mode. Of the file, `portRange` and `udpIdleTimeout` stand at the top, where releases up to
 * v1.25 had them; the section is ours.
 */
import type { DraftConfig } from "../../config/config.ts";
import { CONFIG_ROOT, invalid, negativeMs, notPositive, unsupported } from "../../config/field-error.ts";
import { flagsIn } from "../../config/flag.ts";
import { durationType, portRangeType, stringType } from "../../config/flag-types.ts";
import { parsePortRange } from "../../net/port-range.ts";
import { durationFromMs, durationToMs, formatMs } from "../../text/duration.ts";
import type { ModeConfig } from "../dataplane.ts";

/** `none` needs no netfilter and serves local addresses only. */
const USERSPACE_RULES = ["iptables", "none"] as const;

export interface UserspaceConfig {
  /** Empty: any free port. See `port-range.ts`. */
  readonly portRange: string;
  readonly udpIdleTimeoutMs: number;
  /** One of {@link USERSPACE_RULES}, once checked. */
  readonly rules: string;
  /** After a stop, connections may go on for so long; then they are cut. */
  readonly drainTimeoutMs: number;
}

const FIELDS = { rules: "text", drainTimeout: "optionalDuration" } as const;

/** v1.25's, and for the fields that it did not have, ours. */
const DEFAULTS: UserspaceConfig = {
  portRange: "",
  udpIdleTimeoutMs: 250,
  rules: "iptables",
  drainTimeoutMs: 10_000,
};

const userspaceFlag = flagsIn("userspace");

/** Whether fields that upstream does not have say anything; otherwise they are left out, so that upstream can read the rest. */
function saysSomething({ mode, userspace }: DraftConfig): boolean {
  const { udpIdleTimeoutMs, rules, drainTimeoutMs } = DEFAULTS;
  return (
    mode === "userspace" ||
    userspace.udpIdleTimeoutMs !== udpIdleTimeoutMs ||
    userspace.rules !== rules ||
    userspace.drainTimeoutMs !== drainTimeoutMs
  );
}

export const userspaceConfig: ModeConfig<typeof FIELDS, UserspaceConfig> = {
  goType: "v1alpha1.KubeProxyUserspaceConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  resolve: ({ userspace: { rules, drainTimeout = null }, portRange, udpIdleTimeout }) => ({
    portRange,
    udpIdleTimeoutMs: durationToMs(udpIdleTimeout) || DEFAULTS.udpIdleTimeoutMs,
    rules: rules || DEFAULTS.rules,
    drainTimeoutMs: drainTimeout === null ? DEFAULTS.drainTimeoutMs : durationToMs(drainTimeout),
  }),
  // The words are those of v1.25, which checked these fields in every mode; here only those that have an effect are
  // checked, as a port range has had none since.
  errors({ mode, userspace }) {
    const path = `${CONFIG_ROOT}.KubeProxyUserspaceConfiguration`;
    const isKnown = USERSPACE_RULES.some((known) => known === userspace.rules);
    const rules = isKnown ? [] : [unsupported(`${path}.Rules`, userspace.rules, USERSPACE_RULES)];
    if (mode !== "userspace") return rules;
    const range = parsePortRange(userspace.portRange);
    const rangeText = (reason: string) => `must be a valid port range (e.g. 300-2000): ${reason}`;
    return [
      ...rules,
      ...negativeMs(`${path}.DrainTimeout`, userspace.drainTimeoutMs),
      ...(range.ok ? [] : [invalid(`${CONFIG_ROOT}.PortRange`, userspace.portRange, rangeText(range.error))]),
      ...notPositive(`${CONFIG_ROOT}.UDPIdleTimeout`, userspace.udpIdleTimeoutMs),
    ];
  },
  encode(draft) {
    const { rules, drainTimeoutMs } = draft.userspace;
    return saysSomething(draft) ? { rules, drainTimeout: formatMs(drainTimeoutMs) } : undefined;
  },
  encodeAtTop(draft) {
    const { portRange, udpIdleTimeoutMs } = draft.userspace;
    return { portRange, ...(saysSomething(draft) && { udpIdleTimeout: formatMs(udpIdleTimeoutMs) }) };
  },
  flags: [
    userspaceFlag({
      name: "proxy-port-range",
      type: portRangeType,
      initial: DEFAULTS.portRange,
      help: "The ports that userspace mode may use for its own sockets: N, FIRST-LAST or FIRST+LENGTH; empty or 0: any free port.",
      isExtension: true,
      sets: (portRange) => ({ portRange }),
    }),
    userspaceFlag({
      name: "udp-timeout",
      type: durationType,
      initial: durationFromMs(DEFAULTS.udpIdleTimeoutMs),
      help: "How long userspace mode keeps a UDP session in which nothing happens; more than 0.",
      isExtension: true,
      sets: (time) => ({ udpIdleTimeoutMs: durationToMs(time) }),
    }),
    userspaceFlag({
      name: "userspace-drain-timeout",
      type: durationType,
      initial: durationFromMs(DEFAULTS.drainTimeoutMs),
      help: "How long connections through userspace mode may go on when the process is told to stop; then they are cut.",
      isExtension: true,
      sets: (time) => ({ drainTimeoutMs: durationToMs(time) }),
    }),
    userspaceFlag({
      name: "userspace-rules",
      type: stringType,
      initial: DEFAULTS.rules,
      help: "What leads traffic to the sockets of userspace mode: iptables, or none, which needs no netfilter and serves only service addresses that this host has, and node ports.",
      isExtension: true,
      sets: (rules) => ({ rules }),
    }),
  ],
};
