/** The flags of kernel tuning. Reference start.md §2.2. */
import type { ConntrackConfig, DraftConfig } from "../../config/config.ts";
import { type AnyFlag, flag } from "../../config/flag.ts";
import { boolType, durationType, int32Type } from "../../config/flag-types.ts";
import { durationToMs } from "../../text/duration.ts";

const SECOND = 1_000_000_000n;
const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

const withConntrack = (config: DraftConfig, change: Partial<ConntrackConfig>): DraftConfig => ({
  ...config,
  conntrack: { ...config.conntrack, ...change },
});
const CONNTRACK_FLAGS: readonly AnyFlag[] = [
  flag({
    name: "conntrack-max-per-core",
    type: int32Type,
    initial: 32 * 1024,
    help: "Tracked connections allowed for each CPU; 0 leaves the kernel's limit alone and ignores --conntrack-min.",
    overlay: (config, maxPerCore) => withConntrack(config, { maxPerCore }),
  }),
  flag({
    name: "conntrack-min",
    type: int32Type,
    initial: 128 * 1024,
    help: "The least number of tracked connections to allow, however few CPUs there are.",
    overlay: (config, min) => withConntrack(config, { min }),
  }),
  flag({
    name: "conntrack-tcp-be-liberal",
    type: boolType,
    initial: false,
    help: "Let connection tracking accept TCP packets outside of the window (sets nf_conntrack_tcp_be_liberal).",
    overlay: (config, tcpBeLiberal) => withConntrack(config, { tcpBeLiberal }),
  }),
  flag({
    name: "conntrack-tcp-timeout-close-wait",
    type: durationType,
    initial: 3600n * SECOND,
    help: "How long a TCP connection in CLOSE_WAIT stays tracked.",
    overlay: (config, time) => withConntrack(config, { tcpCloseWaitTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "conntrack-tcp-timeout-established",
    type: durationType,
    initial: 24n * 3600n * SECOND,
    help: `How long an idle TCP connection stays tracked. ${KEEPS_KERNEL_VALUE}`,
    overlay: (config, time) => withConntrack(config, { tcpEstablishedTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "conntrack-udp-timeout",
    type: durationType,
    initial: 0n,
    help: `How long an unanswered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
    overlay: (config, time) => withConntrack(config, { udpTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "conntrack-udp-timeout-stream",
    type: durationType,
    initial: 0n,
    help: `How long an answered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
    overlay: (config, time) => withConntrack(config, { udpStreamTimeoutMs: durationToMs(time) }),
  }),
];

export const KERNEL_FLAGS: readonly AnyFlag[] = [
  ...CONNTRACK_FLAGS,
  flag({
    name: "masquerade-all",
    type: boolType,
    initial: false,
    help: "Masquerade all traffic to cluster IPs, also that of local pods.",
    overlay: (config, masqueradeAll) => ({ ...config, masqueradeAll }),
  }),
  flag({
    name: "oom-score-adj",
    type: int32Type,
    initial: -999,
    help: "The oom_score_adj of this process, -1000 to 1000.",
    overlay: (config, oomScoreAdj) => ({ ...config, oomScoreAdj }),
  }),
];
