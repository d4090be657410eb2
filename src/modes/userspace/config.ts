/**
 * The settings of the userspace mode. `portRange` and `udpIdleTimeout` are at the top level of the file, as in releases
 * up to v1.25; the section `userspace` is not upstream's.
 */
import type { DraftConfig } from "../../contract/config/config.ts";
import type { SettingsOf } from "../../contract/config/document-fields.ts";
import { CONFIG_ROOT, invalid, negativeMs, notPositive, unsupported } from "../../contract/config/field-error.ts";
import { flagsIn } from "../../contract/config/flag.ts";
import { durationType, portRangeType } from "../../contract/config/flag-types.ts";
import { Section } from "../../contract/config/section.ts";
import type { ModeConfig } from "../../contract/dataplane.ts";
import { parsePortRange } from "../../net/port-range.ts";
import { durationFromMs, durationToMs, formatMs } from "../../text/duration.ts";

/** `none` needs no netfilter and serves local addresses only. */
const USERSPACE_RULES = ["iptables", "none"] as const;

const FIELDS = {
  /** One of {@link USERSPACE_RULES}, after validation. */
  rules: "text",
  /** After a stop, connections may go on for this long; then they are cut. */
  drainTimeout: "optionalDuration",
} as const;

export interface UserspaceConfig extends SettingsOf<typeof FIELDS> {
  /** Empty: any free port. See `port-range.ts`. */
  readonly portRange: string;
  readonly udpIdleTimeoutMs: number;
}

const section = new Section("userspace", FIELDS, { rules: "iptables", drainTimeoutMs: 10_000 });

/** The default of v1.25. */
const UDP_IDLE_TIMEOUT_MS = 250;

const userspaceFlag = flagsIn("userspace");

/** Whether fields that upstream lacks have an effect; otherwise they are left out, so that upstream can read the rest. */
function saysSomething({ mode, userspace }: DraftConfig): boolean {
  const isSet = userspace.udpIdleTimeoutMs !== UDP_IDLE_TIMEOUT_MS;
  return mode === "userspace" || isSet || Object.keys(section.encodeSet(userspace)).length > 0;
}

export const userspaceConfig: ModeConfig<typeof FIELDS, UserspaceConfig> = {
  goType: "v1alpha1.KubeProxyUserspaceConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  resolve: ({ userspace, portRange, udpIdleTimeout }) => ({
    portRange,
    udpIdleTimeoutMs: durationToMs(udpIdleTimeout) || UDP_IDLE_TIMEOUT_MS,
    ...section.resolve(userspace),
  }),
  // The messages are those of v1.25, which checked these fields in every mode. Here they are checked only in this mode,
  // because a port range has had no effect in others since.
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
  encode: (draft) => (saysSomething(draft) ? section.encode(draft.userspace) : undefined),
  encodeAtTop(draft) {
    const { portRange, udpIdleTimeoutMs } = draft.userspace;
    return { portRange, ...(saysSomething(draft) && { udpIdleTimeout: formatMs(udpIdleTimeoutMs) }) };
  },
  flags: [
    userspaceFlag({
      name: "proxy-port-range",
      type: portRangeType,
      initial: "",
      help: "The ports for the sockets of userspace mode: N, FIRST-LAST or FIRST+LENGTH; empty or 0: any free port.",
      isExtension: true,
      sets: (portRange) => ({ portRange }),
    }),
    userspaceFlag({
      name: "udp-timeout",
      type: durationType,
      initial: durationFromMs(UDP_IDLE_TIMEOUT_MS),
      help: "How long userspace mode keeps an idle UDP session; must be positive.",
      isExtension: true,
      sets: (time) => ({ udpIdleTimeoutMs: durationToMs(time) }),
    }),
    ...section.flags(
      {
        drainTimeout: [
          "userspace-drain-timeout",
          "How long connections through userspace mode may continue when the process stops; then they are cut.",
        ],
        rules: [
          "userspace-rules",
          "How traffic reaches the sockets of userspace mode: iptables, or none, which needs no netfilter and serves only node ports and those Service addresses that this host has.",
        ],
      },
      { isExtension: true },
    ),
  ],
};
