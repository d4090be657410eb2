/** The flags of the proxy modes and of kernel tuning. Reference server.md §2.2. */
import type { ConntrackConfig, DraftConfig, IptablesConfig, IpvsConfig, UserspaceConfig } from "../config/config.ts";
import { USERSPACE_DEFAULTS } from "../config/defaults.ts";
import { durationFromMs, durationToMs } from "../config/duration.ts";
import { type AnyFlag, flag } from "./flags-definition.ts";
import { boolType, durationType, int32Type, portRangeType, stringListType, stringType } from "./flags-types.ts";

const SECOND = 1_000_000_000n;
const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

const withConntrack = (config: DraftConfig, change: Partial<ConntrackConfig>): DraftConfig => ({
  ...config,
  conntrack: { ...config.conntrack, ...change },
});
const withIptables = (config: DraftConfig, change: Partial<IptablesConfig>): DraftConfig => ({
  ...config,
  iptables: { ...config.iptables, ...change },
});
const withIpvs = (config: DraftConfig, change: Partial<IpvsConfig>): DraftConfig => ({
  ...config,
  ipvs: { ...config.ipvs, ...change },
});

const withUserspace = (config: DraftConfig, change: Partial<UserspaceConfig>): DraftConfig => ({
  ...config,
  userspace: { ...config.userspace, ...change },
});

type Periods = Partial<Pick<DraftConfig, "syncPeriodMs" | "minSyncPeriodMs">>;

/** The ipvs flags drive ipvs mode; the iptables flags drive every other mode, also nftables. */
const withPeriods = (config: DraftConfig, owner: "ipvs" | "iptables", change: Periods): DraftConfig =>
  (config.mode === "ipvs") === (owner === "ipvs") ? { ...config, ...change } : config;

export const IPTABLES_MIN_SYNC_PERIOD = flag({
  name: "iptables-min-sync-period",
  type: durationType,
  initial: SECOND,
  help: "The least time between two syncs of the rules; 0 syncs at every change. Used by every mode but ipvs.",
  overlay: (config, time) => withPeriods(config, "iptables", { minSyncPeriodMs: durationToMs(time) }),
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

const IPTABLES_FLAGS: readonly AnyFlag[] = [
  flag({
    name: "iptables-localhost-nodeports",
    type: boolType,
    initial: true,
    help: "Answer node ports on 127.0.0.1 too (iptables mode, IPv4).",
    overlay: (config, localhostNodePorts) => withIptables(config, { localhostNodePorts }),
  }),
  flag({
    name: "iptables-masquerade-bit",
    type: int32Type,
    initial: 14,
    help: "The bit of the packet mark that asks for masquerading, 0 to 31 (iptables and ipvs modes).",
    overlay: (config, masqueradeBit) => withIptables(config, { masqueradeBit }),
  }),
  IPTABLES_MIN_SYNC_PERIOD,
  flag({
    name: "iptables-sync-period",
    type: durationType,
    initial: 30n * SECOND,
    help: "The longest time between retries and between checks of the rules. Used by every mode but ipvs.",
    overlay: (config, time) => withPeriods(config, "iptables", { syncPeriodMs: durationToMs(time) }),
  }),
];

const IPVS_FLAGS: readonly AnyFlag[] = [
  flag({
    name: "ipvs-exclude-cidrs",
    type: stringListType,
    initial: [],
    help: "Prefixes whose virtual servers ipvs mode leaves alone when it cleans up.",
    overlay: (config, excludeCIDRs) => withIpvs(config, { excludeCIDRs }),
  }),
  flag({
    name: "ipvs-min-sync-period",
    type: durationType,
    initial: SECOND,
    help: "The least time between two syncs in ipvs mode.",
    overlay: (config, time) => withPeriods(config, "ipvs", { minSyncPeriodMs: durationToMs(time) }),
  }),
  flag({
    name: "ipvs-scheduler",
    type: stringType,
    initial: "",
    help: "The IPVS scheduler; empty means rr.",
    overlay: (config, scheduler) => withIpvs(config, { scheduler }),
  }),
  flag({
    name: "ipvs-strict-arp",
    type: boolType,
    initial: false,
    help: "Answer ARP only on the interface that owns the address (sets arp_ignore and arp_announce).",
    overlay: (config, strictARP) => withIpvs(config, { strictARP }),
  }),
  flag({
    name: "ipvs-sync-period",
    type: durationType,
    initial: 30n * SECOND,
    help: "The longest time between two syncs in ipvs mode.",
    overlay: (config, time) => withPeriods(config, "ipvs", { syncPeriodMs: durationToMs(time) }),
  }),
  flag({
    name: "ipvs-tcp-timeout",
    type: durationType,
    initial: 0n,
    help: `How long IPVS keeps an idle TCP connection. ${KEEPS_KERNEL_VALUE}`,
    overlay: (config, time) => withIpvs(config, { tcpTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "ipvs-tcpfin-timeout",
    type: durationType,
    initial: 0n,
    help: `How long IPVS keeps a TCP connection after a FIN. ${KEEPS_KERNEL_VALUE}`,
    overlay: (config, time) => withIpvs(config, { tcpFinTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "ipvs-udp-timeout",
    type: durationType,
    initial: 0n,
    help: `How long IPVS keeps a UDP flow. ${KEEPS_KERNEL_VALUE}`,
    overlay: (config, time) => withIpvs(config, { udpTimeoutMs: durationToMs(time) }),
  }),
];

const USERSPACE_FLAGS: readonly AnyFlag[] = [
  flag({
    name: "proxy-port-range",
    type: portRangeType,
    initial: USERSPACE_DEFAULTS.portRange,
    help: "The ports that userspace mode may use for its own sockets: N, FIRST-LAST or FIRST+LENGTH; empty or 0: any free port.",
    isExtension: true,
    overlay: (config, portRange) => withUserspace(config, { portRange }),
  }),
  flag({
    name: "udp-timeout",
    type: durationType,
    initial: durationFromMs(USERSPACE_DEFAULTS.udpIdleTimeoutMs),
    help: "How long userspace mode keeps a UDP session in which nothing happens; more than 0.",
    isExtension: true,
    overlay: (config, time) => withUserspace(config, { udpIdleTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "userspace-drain-timeout",
    type: durationType,
    initial: durationFromMs(USERSPACE_DEFAULTS.drainTimeoutMs),
    help: "How long connections through userspace mode may go on when the process is told to stop; then they are cut.",
    isExtension: true,
    overlay: (config, time) => withUserspace(config, { drainTimeoutMs: durationToMs(time) }),
  }),
  flag({
    name: "userspace-rules",
    type: stringType,
    initial: USERSPACE_DEFAULTS.rules,
    help: "What leads traffic to the sockets of userspace mode: iptables, or none, which needs no netfilter and serves only service addresses that this host has, and node ports.",
    isExtension: true,
    overlay: (config, rules) => withUserspace(config, { rules }),
  }),
];

export const KERNEL_FLAGS: readonly AnyFlag[] = [
  ...CONNTRACK_FLAGS,
  ...IPTABLES_FLAGS,
  ...IPVS_FLAGS,
  ...USERSPACE_FLAGS,
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
