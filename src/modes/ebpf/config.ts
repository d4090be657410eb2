/** Settings of the eBPF mode. The section is our own: upstream has no such mode. */
import type { SettingsOf } from "../../contract/config/document-fields.ts";
import { CONFIG_ROOT, invalid } from "../../contract/config/field-error.ts";
import { flag } from "../../contract/config/flag.ts";
import { stringListType, stringType } from "../../contract/config/flag-types.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../contract/config/node-port-words.ts";
import { Section } from "../../contract/config/section.ts";
import type { ModeConfig } from "../../contract/dataplane.ts";
import { formatMs } from "../../text/duration.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";

const FIELDS = {
  /** For the packet path. */
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  /** The folder of the cgroup that contains all processes of the node; empty: detect it. */
  cgroupRoot: "text",
  /** The folder that keeps maps and links while the process is down; empty: the usual one; `none`: do not keep them. */
  pinFolder: "text",
  /** Pods use the rules: for meshes and sandboxes that need to see Service addresses. */
  hostNamespaceOnly: "bool",
  /** Prevents processes of the host from binding to served node ports. */
  holdNodePorts: "bool",
  /** How long programs stay in force after the process last renewed them. */
  validFor: "duration",
  /** Capacity for UDP flows, connected UDP sockets, TCP sockets and clients with session affinity, each per family. */
  rememberedSockets: "optionalInt32",
} as const;

/** Fields of earlier versions: see `notice`. */
const GONE_FIELDS = { packetPath: "text", packetInterfaces: "texts" } as const;

export type EbpfConfig = SettingsOf<typeof FIELDS>;

/** The default of `rememberedSockets`. */
export const REMEMBERED = 32_768;

const section = new Section("ebpf", FIELDS, {
  ...{ masqueradeBit: DEFAULT_MASQUERADE_BIT, cgroupRoot: "", pinFolder: "", hostNamespaceOnly: false },
  ...{ holdNodePorts: false, validForMs: 600_000, rememberedSockets: REMEMBERED },
});

const [LEAST_REMEMBERED, MOST_REMEMBERED] = [1024, 1 << 24];
/** The process renews the programs every ten seconds. */
const LEAST_VALID_FOR_MS = 60_000;

/** The value of `pinFolder` that disables pinning. */
export const NO_FOLDER = "none";

const GO_TYPE = "KubeProxyEBPFConfiguration";

function fieldErrors({ cgroupRoot, pinFolder, validForMs, rememberedSockets }: EbpfConfig): readonly string[] {
  const isPath = (text: string): boolean => text === "" || text.startsWith("/");
  const isRoom = rememberedSockets >= LEAST_REMEMBERED && rememberedSockets <= MOST_REMEMBERED;
  const unless = (isRight: boolean, field: string, value: string | number, rule: string): readonly string[] =>
    isRight ? [] : [invalid(`${CONFIG_ROOT}.${GO_TYPE}.${field}`, value, rule)];
  const range = `[${LEAST_REMEMBERED}, ${MOST_REMEMBERED}]`;
  const leastTime = formatMs(LEAST_VALID_FOR_MS);
  const hasPinFolder = isPath(pinFolder) || pinFolder === NO_FOLDER;
  return [
    ...unless(isPath(cgroupRoot), "CgroupRoot", cgroupRoot, "must be an absolute path, or empty"),
    ...unless(hasPinFolder, "PinFolder", pinFolder, `must be an absolute path, ${NO_FOLDER}, or empty`),
    ...unless(validForMs >= LEAST_VALID_FOR_MS, "ValidFor", formatMs(validForMs), `must be at least ${leastTime}`),
    ...unless(isRoom, "RememberedSockets", rememberedSockets, `must be within the range ${range}`),
  ];
}

const USES_RULES = "packets of other machines take the nftables rules";
/** Flags of earlier versions, without effect. */
const GONE_FLAG = { isExtension: true, help: "Removed.", deprecated: `It has no effect: ${USES_RULES}.` };

export const ebpfConfig: ModeConfig<typeof FIELDS & typeof GONE_FIELDS, EbpfConfig> = {
  goType: `v1alpha1.${GO_TYPE}`,
  fields: { ...FIELDS, ...GONE_FIELDS },
  minSyncPeriodMs: 1_000,
  // As in nftables mode: the packet path requests the pauses that it needs.
  restWhenUnsetMs: 1,
  nodePortAddresses: [NODE_PORT_ADDRESSES_PRIMARY],
  resolve: ({ ebpf }) => section.resolve(ebpf),
  errors: ({ mode, ebpf }) =>
    mode === "ebpf" ? [...masqueradeBitErrors(GO_TYPE, ebpf.masqueradeBit), ...fieldErrors(ebpf)] : [],
  notice: ({ ebpf }) =>
    ebpf.packetPath.toLowerCase() === "tcx" ? `ebpf.packetPath: Tcx has been removed: ${USES_RULES}` : undefined,
  // An empty section is omitted, so that upstream can read the rest.
  encode: ({ mode, ebpf }, shared) =>
    mode === "ebpf" || Object.keys(section.encodeSet(ebpf)).length > 0 ? section.encode(ebpf, shared) : undefined,
  flags: [
    ...section.flags(
      {
        cgroupRoot: [
          "ebpf-cgroup-root",
          "In ebpf mode, the cgroup v2 folder that holds all processes of the node; empty: the root of the mounted hierarchy.",
        ],
        pinFolder: [
          "ebpf-pin-folder",
          "In ebpf mode, the folder on a bpf file system that keeps maps and links while the process is down; empty: /sys/fs/bpf/kube-proxy-ts, if such a file system is mounted; none: nothing is kept.",
        ],
        hostNamespaceOnly: [
          "ebpf-host-namespace-only",
          "In ebpf mode, choose endpoints at the socket for processes on the host's network only; pods use the nftables rules. For service meshes and sandboxed pods that need to see Service addresses.",
        ],
        holdNodePorts: [
          "ebpf-hold-node-ports",
          "In ebpf mode, reserve served node ports (TCP, UDP): a process on the host's network that binds to one gets EADDRINUSE.",
        ],
        validFor: [
          "ebpf-valid-for",
          "In ebpf mode, how long the programs go on after the last sign of life of the process; after that all connections use the rules.",
        ],
        rememberedSockets: [
          "ebpf-remembered-sockets",
          "In ebpf mode, the capacity per family for UDP flows, connected UDP sockets, TCP sockets and clients with session affinity; rounded up to a power of two, effective when the maps are recreated.",
        ],
      },
      { isExtension: true },
    ),
    flag({ name: "ebpf-packet-path", type: stringType, initial: "", ...GONE_FLAG }),
    flag({ name: "ebpf-packet-interfaces", type: stringListType, initial: [], ...GONE_FLAG }),
  ],
};
