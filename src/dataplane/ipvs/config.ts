/** The settings of the ipvs mode. */
import { listOrNull } from "../../config/document-fields.ts";
import { CONFIG_ROOT, invalid, negativeMs } from "../../config/field-error.ts";
import { flagsIn } from "../../config/flag.ts";
import { boolType, durationType, stringListType, stringType } from "../../config/flag-types.ts";
import { parseCidr } from "../../net/ip.ts";
import { durationToMs, formatMs } from "../../text/duration.ts";
import type { ModeConfig } from "../dataplane.ts";

export interface IpvsConfig {
  /** Empty: {@link schedulerOf} chooses. */
  readonly scheduler: string;
  readonly excludeCIDRs: readonly string[];
  readonly strictARP: boolean;
  /** 0 keeps the kernel's value, here and in the next two. */
  readonly tcpTimeoutMs: number;
  readonly tcpFinTimeoutMs: number;
  readonly udpTimeoutMs: number;
}

const FIELDS = {
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  scheduler: "text",
  excludeCIDRs: "texts",
  strictARP: "bool",
  tcpTimeout: "duration",
  tcpFinTimeout: "duration",
  udpTimeout: "duration",
} as const;

/** The scheduler of virtual servers: the one that was set, or round robin. Pure. */
export function schedulerOf({ scheduler }: IpvsConfig): string {
  return scheduler === "" ? "rr" : scheduler;
}

const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

const ipvsFlag = flagsIn("ipvs");

export const ipvsConfig: ModeConfig<typeof FIELDS, IpvsConfig> = {
  goType: "v1alpha1.KubeProxyIPVSConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 0,
  resolve: ({ ipvs }) => ({
    scheduler: ipvs.scheduler,
    excludeCIDRs: ipvs.excludeCIDRs,
    strictARP: ipvs.strictARP,
    tcpTimeoutMs: durationToMs(ipvs.tcpTimeout),
    tcpFinTimeoutMs: durationToMs(ipvs.tcpFinTimeout),
    udpTimeoutMs: durationToMs(ipvs.udpTimeout),
  }),
  errors({ mode, ipvs }) {
    if (mode !== "ipvs") return [];
    const path = `${CONFIG_ROOT}.KubeProxyIPVSConfiguration`;
    return [
      ...negativeMs(`${path}.TCPTimeout`, ipvs.tcpTimeoutMs),
      ...negativeMs(`${path}.TCPFinTimeout`, ipvs.tcpFinTimeoutMs),
      ...negativeMs(`${path}.UDPTimeout`, ipvs.udpTimeoutMs),
      ...ipvs.excludeCIDRs.flatMap((cidr, index) =>
        parseCidr(cidr) === undefined ? [invalid(`${path}.ExcludeCidrs[${index}]`, cidr, "must be a valid CIDR")] : [],
      ),
    ];
  },
  encode: ({ ipvs }, { periods }) => ({
    ...periods,
    scheduler: ipvs.scheduler,
    excludeCIDRs: listOrNull(ipvs.excludeCIDRs),
    strictARP: ipvs.strictARP,
    tcpTimeout: formatMs(ipvs.tcpTimeoutMs),
    tcpFinTimeout: formatMs(ipvs.tcpFinTimeoutMs),
    udpTimeout: formatMs(ipvs.udpTimeoutMs),
  }),
  periodFlags: {
    syncPeriod: "The longest time between two syncs in ipvs mode.",
    minSyncPeriod: "The least time between two syncs in ipvs mode.",
  },
  flags: [
    ipvsFlag({
      name: "ipvs-exclude-cidrs",
      type: stringListType,
      initial: [],
      help: "Prefixes whose virtual servers ipvs mode leaves alone when it cleans up.",
      sets: (excludeCIDRs) => ({ excludeCIDRs }),
    }),
    ipvsFlag({
      name: "ipvs-scheduler",
      type: stringType,
      initial: "",
      help: "The IPVS scheduler; empty means rr.",
      sets: (scheduler) => ({ scheduler }),
    }),
    ipvsFlag({
      name: "ipvs-strict-arp",
      type: boolType,
      initial: false,
      help: "Answer ARP only on the interface that owns the address (sets arp_ignore and arp_announce).",
      sets: (strictARP) => ({ strictARP }),
    }),
    ipvsFlag({
      name: "ipvs-tcp-timeout",
      type: durationType,
      initial: 0n,
      help: `How long IPVS keeps an idle TCP connection. ${KEEPS_KERNEL_VALUE}`,
      sets: (time) => ({ tcpTimeoutMs: durationToMs(time) }),
    }),
    ipvsFlag({
      name: "ipvs-tcpfin-timeout",
      type: durationType,
      initial: 0n,
      help: `How long IPVS keeps a TCP connection after a FIN. ${KEEPS_KERNEL_VALUE}`,
      sets: (time) => ({ tcpFinTimeoutMs: durationToMs(time) }),
    }),
    ipvsFlag({
      name: "ipvs-udp-timeout",
      type: durationType,
      initial: 0n,
      help: `How long IPVS keeps a UDP flow. ${KEEPS_KERNEL_VALUE}`,
      sets: (time) => ({ udpTimeoutMs: durationToMs(time) }),
    }),
  ],
};
