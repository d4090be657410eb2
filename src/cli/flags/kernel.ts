/** The flags of kernel tuning. Reference start.md §2.2. */
import { type AnyFlag, flag } from "../../config/flag.ts";
import { boolType } from "../../config/flag-types.ts";
import { CONNTRACK, GENERAL } from "../../config/v1alpha1-document.ts";

const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

export const KERNEL_FLAGS: readonly AnyFlag[] = [
  CONNTRACK.flag({
    name: "conntrack-max-per-core",
    field: "maxPerCore",
    help: "Tracked connections allowed for each CPU; 0 leaves the kernel's limit alone and ignores --conntrack-min.",
  }),
  CONNTRACK.flag({
    name: "conntrack-min",
    field: "min",
    help: "The least number of tracked connections to allow, however few CPUs there are.",
  }),
  CONNTRACK.flag({
    name: "conntrack-tcp-be-liberal",
    field: "tcpBeLiberal",
    help: "Let connection tracking accept TCP packets outside of the window (sets nf_conntrack_tcp_be_liberal).",
  }),
  CONNTRACK.flag({
    name: "conntrack-tcp-timeout-close-wait",
    field: "tcpCloseWaitTimeout",
    help: "How long a TCP connection in CLOSE_WAIT stays tracked.",
  }),
  CONNTRACK.flag({
    name: "conntrack-tcp-timeout-established",
    field: "tcpEstablishedTimeout",
    help: `How long an idle TCP connection stays tracked. ${KEEPS_KERNEL_VALUE}`,
  }),
  CONNTRACK.flag({
    name: "conntrack-udp-timeout",
    field: "udpTimeout",
    help: `How long an unanswered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
  }),
  CONNTRACK.flag({
    name: "conntrack-udp-timeout-stream",
    field: "udpStreamTimeout",
    help: `How long an answered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
  }),
  flag({
    name: "masquerade-all",
    type: boolType,
    initial: false,
    help: "Masquerade all traffic to cluster IPs, also that of local pods.",
    overlay: (config, masqueradeAll) => ({ ...config, masqueradeAll }),
  }),
  GENERAL.flag({
    name: "oom-score-adj",
    field: "oomScoreAdj",
    help: "The oom_score_adj of this process, -1000 to 1000.",
  }),
];
