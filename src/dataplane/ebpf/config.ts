/** The settings of the eBPF mode. The section is ours: upstream has no such mode. */
import type { DraftConfig } from "../../config/config.ts";
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";
import { flag } from "../../config/flag.ts";
import { boolType, durationType, int32Type, stringListType, stringType } from "../../config/flag-types.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../config/node-port-words.ts";
import { REMEMBERED } from "../../kernel/bpf/socket-balancer/maps.ts";
import { durationFromMs, durationToMs, formatMs } from "../../text/duration.ts";
import type { ModeConfig } from "../dataplane.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";

export interface EbpfConfig {
  /** Of the packet path. */
  readonly masqueradeBit: number;
  /** The folder of the cgroup that holds all processes of the node; empty: it is looked for. */
  readonly cgroupRoot: string;
  /** The folder in which maps and links are kept while the process is away; empty: the usual one; `none`: they are not. */
  readonly pinFolder: string;
  /** Pods take the rules: for meshes and sandboxes that want to see service addresses. */
  readonly hostNamespaceOnly: boolean;
  /** Processes of the host may not bind to node ports that are served. */
  readonly holdNodePorts: boolean;
  /** How long programs decide after the process has shown last that it lives. */
  readonly validForMs: number;
  /** How many UDP flows, connected UDP sockets, TCP sockets and clients with session affinity there is room for, of each family. */
  readonly rememberedSockets: number;
}

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  cgroupRoot: "text",
  pinFolder: "text",
  hostNamespaceOnly: "bool",
  holdNodePorts: "bool",
  validFor: "duration",
  rememberedSockets: "optionalInt32",
  // Of earlier versions: see `notice`.
  packetPath: "text",
  packetInterfaces: "texts",
} as const;

const VALID_FOR_MS = 600_000;
const [LEAST_REMEMBERED, MOST_REMEMBERED] = [1024, 1 << 24];
/** The process shows every ten seconds that it lives. */
const LEAST_VALID_FOR_MS = 60_000;

/** The value of `pinFolder` that asks for none. */
export const NO_FOLDER = "none";

const GO_TYPE = "KubeProxyEBPFConfiguration";

function fieldErrors({ cgroupRoot, pinFolder, validForMs, rememberedSockets }: EbpfConfig): readonly string[] {
  const isPath = (text: string): boolean => text === "" || text.startsWith("/");
  const isRoom = rememberedSockets >= LEAST_REMEMBERED && rememberedSockets <= MOST_REMEMBERED;
  const checks: readonly (readonly [isRight: boolean, field: string, value: string | number, rule: string])[] = [
    [isPath(cgroupRoot), "CgroupRoot", cgroupRoot, "must be an absolute path, or empty"],
    [
      isPath(pinFolder) || pinFolder === NO_FOLDER,
      "PinFolder",
      pinFolder,
      `must be an absolute path, ${NO_FOLDER}, or empty`,
    ],
    [
      validForMs >= LEAST_VALID_FOR_MS,
      "ValidFor",
      formatMs(validForMs),
      `must be at least ${formatMs(LEAST_VALID_FOR_MS)}`,
    ],
    [
      isRoom,
      "RememberedSockets",
      rememberedSockets,
      `must be within the range [${LEAST_REMEMBERED}, ${MOST_REMEMBERED}]`,
    ],
  ];
  return checks.flatMap(([isRight, field, value, rule]) =>
    isRight ? [] : [invalid(`${CONFIG_ROOT}.${GO_TYPE}.${field}`, value, rule)],
  );
}

/** Whether the section says anything; otherwise it is left out, so that upstream can read the rest. */
function saysSomething({ mode, ebpf }: DraftConfig): boolean {
  const { cgroupRoot, pinFolder, hostNamespaceOnly, holdNodePorts } = ebpf;
  if (cgroupRoot !== "" || pinFolder !== "" || ebpf.validForMs !== VALID_FOR_MS) return true;
  if (ebpf.rememberedSockets !== REMEMBERED) return true;
  return mode === "ebpf" || hostNamespaceOnly || holdNodePorts || ebpf.masqueradeBit !== DEFAULT_MASQUERADE_BIT;
}

const USES_RULES = "packets of other machines take the nftables rules";
/** Flags of earlier versions, which change nothing. */
const GONE_FLAG = { isExtension: true, help: "Removed.", deprecated: `It has no effect: ${USES_RULES}.` };

export const ebpfConfig: ModeConfig<typeof FIELDS, EbpfConfig> = {
  goType: `v1alpha1.${GO_TYPE}`,
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  // As in nftables mode: the packet path asks for the pauses that it needs.
  restWhenUnsetMs: 1,
  nodePortAddresses: [NODE_PORT_ADDRESSES_PRIMARY],
  resolve: ({ ebpf }) => ({
    masqueradeBit: ebpf.masqueradeBit ?? DEFAULT_MASQUERADE_BIT,
    cgroupRoot: ebpf.cgroupRoot,
    pinFolder: ebpf.pinFolder,
    hostNamespaceOnly: ebpf.hostNamespaceOnly,
    holdNodePorts: ebpf.holdNodePorts,
    validForMs: durationToMs(ebpf.validFor) || VALID_FOR_MS,
    rememberedSockets: ebpf.rememberedSockets ?? REMEMBERED,
  }),
  errors: ({ mode, ebpf }) =>
    mode === "ebpf" ? [...masqueradeBitErrors(GO_TYPE, ebpf.masqueradeBit), ...fieldErrors(ebpf)] : [],
  notice: ({ ebpf }) =>
    ebpf.packetPath.toLowerCase() === "tcx" ? `ebpf.packetPath: Tcx has been removed: ${USES_RULES}` : undefined,
  encode(draft, { masqueradeAll, periods }) {
    if (!saysSomething(draft)) return undefined;
    const { masqueradeBit, cgroupRoot, pinFolder, hostNamespaceOnly, holdNodePorts, rememberedSockets } = draft.ebpf;
    const validFor = formatMs(draft.ebpf.validForMs);
    const sockets = { cgroupRoot, pinFolder, hostNamespaceOnly, holdNodePorts, validFor, rememberedSockets };
    return { masqueradeBit, masqueradeAll, ...periods, ...sockets };
  },
  flags: [
    flag({
      name: "ebpf-cgroup-root",
      type: stringType,
      initial: "",
      isExtension: true,
      help: "The folder of the cgroup v2 that holds all processes of the node, for ebpf mode; empty: the root of the hierarchy, where it is mounted.",
      overlay: (config, cgroupRoot) => ({ ...config, ebpf: { ...config.ebpf, cgroupRoot } }),
    }),
    flag({
      name: "ebpf-pin-folder",
      type: stringType,
      initial: "",
      isExtension: true,
      help: "The folder, on a bpf file system, in which ebpf mode keeps its maps and links while the process is away; empty: /sys/fs/bpf/kube-proxy-ts, where such a file system is; none: nothing is kept.",
      overlay: (config, pinFolder) => ({ ...config, ebpf: { ...config.ebpf, pinFolder } }),
    }),
    flag({
      name: "ebpf-host-namespace-only",
      type: boolType,
      initial: false,
      isExtension: true,
      help: "In ebpf mode, decide at the socket for processes on the host's network only; pods take the nftables rules. For service meshes and sandboxed pods that want to see service addresses.",
      overlay: (config, hostNamespaceOnly) => ({ ...config, ebpf: { ...config.ebpf, hostNamespaceOnly } }),
    }),
    flag({
      name: "ebpf-hold-node-ports",
      type: boolType,
      initial: false,
      isExtension: true,
      help: "In ebpf mode, let no process on the host's network bind to a node port that is served (TCP, UDP): it gets EADDRINUSE.",
      overlay: (config, holdNodePorts) => ({ ...config, ebpf: { ...config.ebpf, holdNodePorts } }),
    }),
    flag({
      name: "ebpf-valid-for",
      type: durationType,
      initial: durationFromMs(VALID_FOR_MS),
      isExtension: true,
      help: "In ebpf mode, how long programs decide at the socket after the process has shown last that it lives; then all take the rules.",
      overlay: (config, time) => ({ ...config, ebpf: { ...config.ebpf, validForMs: durationToMs(time) } }),
    }),
    flag({
      name: "ebpf-remembered-sockets",
      type: int32Type,
      initial: REMEMBERED,
      isExtension: true,
      help: "In ebpf mode, for how many UDP flows, connected UDP sockets, TCP sockets and clients with session affinity of each family there is room; rounded up to a power of two, and in force when the maps are made again.",
      overlay: (config, rememberedSockets) => ({ ...config, ebpf: { ...config.ebpf, rememberedSockets } }),
    }),
    flag({ name: "ebpf-packet-path", type: stringType, initial: "", ...GONE_FLAG }),
    flag({ name: "ebpf-packet-interfaces", type: stringListType, initial: [], ...GONE_FLAG }),
  ],
};
