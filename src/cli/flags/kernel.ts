/** The flags of kernel tuning. Reference start.md §2.2. */
import { type AnyFlag, flag, flagsIn } from "../../config/flag.ts";
import { boolType, durationType, int32Type } from "../../config/flag-types.ts";
import { durationToMs } from "../../text/duration.ts";

const SECOND = 1_000_000_000n;
const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

const conntrackFlag = flagsIn("conntrack");
const CONNTRACK_FLAGS: readonly AnyFlag[] = [
  conntrackFlag({
    name: "conntrack-max-per-core",
    type: int32Type,
    initial: 32 * 1024,
    help: "Tracked connections allowed for each CPU; 0 leaves the kernel's limit alone and ignores --conntrack-min.",
    sets: (maxPerCore) => ({ maxPerCore }),
  }),
  conntrackFlag({
    name: "conntrack-min",
    type: int32Type,
    initial: 128 * 1024,
    help: "The least number of tracked connections to allow, however few CPUs there are.",
    sets: (min) => ({ min }),
  }),
  conntrackFlag({
    name: "conntrack-tcp-be-liberal",
    type: boolType,
    initial: false,
    help: "Let connection tracking accept TCP packets outside of the window (sets nf_conntrack_tcp_be_liberal).",
    sets: (tcpBeLiberal) => ({ tcpBeLiberal }),
  }),
  conntrackFlag({
    name: "conntrack-tcp-timeout-close-wait",
    type: durationType,
    initial: 3600n * SECOND,
    help: "How long a TCP connection in CLOSE_WAIT stays tracked.",
    sets: (time) => ({ tcpCloseWaitTimeoutMs: durationToMs(time) }),
  }),
  conntrackFlag({
    name: "conntrack-tcp-timeout-established",
    type: durationType,
    initial: 24n * 3600n * SECOND,
    help: `How long an idle TCP connection stays tracked. ${KEEPS_KERNEL_VALUE}`,
    sets: (time) => ({ tcpEstablishedTimeoutMs: durationToMs(time) }),
  }),
  conntrackFlag({
    name: "conntrack-udp-timeout",
    type: durationType,
    initial: 0n,
    help: `How long an unanswered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
    sets: (time) => ({ udpTimeoutMs: durationToMs(time) }),
  }),
  conntrackFlag({
    name: "conntrack-udp-timeout-stream",
    type: durationType,
    initial: 0n,
    help: `How long an answered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
    sets: (time) => ({ udpStreamTimeoutMs: durationToMs(time) }),
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
