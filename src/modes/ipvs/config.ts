/** The settings of the ipvs mode. */
import type { SettingsOf } from "../../contract/config/document-fields.ts";
import { CONFIG_ROOT, invalid, negativeMs } from "../../contract/config/field-error.ts";
import { Section } from "../../contract/config/section.ts";
import type { ModeConfig } from "../../contract/dataplane.ts";
import { type Cidr, parseCidr } from "../../net/ip.ts";

const FIELDS = {
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  /** Empty: {@link schedulerOf} chooses. */
  scheduler: "text",
  excludeCIDRs: "texts",
  strictARP: "bool",
  /** 0 keeps the kernel's value, here and in the next two. */
  tcpTimeout: "duration",
  tcpFinTimeout: "duration",
  udpTimeout: "duration",
} as const;

export type IpvsConfig = SettingsOf<typeof FIELDS>;

const section = new Section("ipvs", FIELDS, {
  ...{ scheduler: "", excludeCIDRs: [], strictARP: false },
  ...{ tcpTimeoutMs: 0, tcpFinTimeoutMs: 0, udpTimeoutMs: 0 },
});

/** The configured scheduler, or round robin. */
export function schedulerOf({ scheduler }: IpvsConfig): string {
  return scheduler === "" ? "rr" : scheduler;
}

/** `rr` ignores weights. */
export function withWeights(scheduler: string, isWeighted: boolean): string {
  return scheduler === "rr" && isWeighted ? "wrr" : scheduler;
}

/** The prefixes whose virtual servers are left alone; validation has rejected invalid ones. */
export function excludedPrefixes({ excludeCIDRs }: IpvsConfig): Cidr[] {
  return excludeCIDRs.map((text) => parseCidr(text)).filter((cidr) => cidr !== undefined);
}

const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

export const ipvsConfig: ModeConfig<typeof FIELDS, IpvsConfig> = {
  goType: "v1alpha1.KubeProxyIPVSConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 0,
  resolve: ({ ipvs }) => section.resolve(ipvs),
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
  encode: ({ ipvs }, shared) => section.encode(ipvs, shared),
  periodFlags: {
    syncPeriod: "The maximum time between two syncs in ipvs mode.",
    minSyncPeriod: "The minimum time between two syncs in ipvs mode.",
  },
  flags: section.flags({
    excludeCIDRs: ["ipvs-exclude-cidrs", "CIDRs whose virtual servers ipvs mode does not clean up."],
    scheduler: ["ipvs-scheduler", "The IPVS scheduler; empty means rr."],
    strictARP: [
      "ipvs-strict-arp",
      "Answer ARP only on the interface that owns the address (sets arp_ignore and arp_announce).",
    ],
    tcpTimeout: ["ipvs-tcp-timeout", `How long IPVS keeps an idle TCP connection. ${KEEPS_KERNEL_VALUE}`],
    tcpFinTimeout: ["ipvs-tcpfin-timeout", `How long IPVS keeps a TCP connection after a FIN. ${KEEPS_KERNEL_VALUE}`],
    udpTimeout: ["ipvs-udp-timeout", `How long IPVS keeps a UDP flow. ${KEEPS_KERNEL_VALUE}`],
  }),
};
