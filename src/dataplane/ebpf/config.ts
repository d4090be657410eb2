/** The settings of the eBPF mode. The section is ours: upstream has no such mode. */
import type { DraftConfig } from "../../config/config.ts";
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";
import { flag } from "../../config/flag.ts";
import { boolType, stringListType, stringType } from "../../config/flag-types.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../config/node-port-primary.ts";
import { INTERFACE_NAME_RULE, isInterfaceName, isInterfaceNamePrefix } from "../../net/interface-name.ts";
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
  /** What leads packets: the rules alone, or programs at interfaces in front of them. A {@link PacketPathName}. */
  readonly packetPath: string;
  /** Names of interfaces where packets meet programs, `eth*` for all that begin so; empty: those with the node's address. */
  readonly packetInterfaces: readonly string[];
}

/** The first is the default. */
export const PACKET_PATHS = ["Nftables", "Tcx"] as const;
export type PacketPathName = (typeof PACKET_PATHS)[number];

/** The packet path of settings that have passed the checks. Pure. */
export function packetPathOf({ packetPath }: EbpfConfig): PacketPathName {
  return PACKET_PATHS.find((name) => name.toLowerCase() === packetPath.toLowerCase()) ?? PACKET_PATHS[0];
}

function packetErrors(section: EbpfConfig): readonly string[] {
  const { packetPath, packetInterfaces } = section;
  const errors: string[] = [];
  if (packetPathOf(section).toLowerCase() !== packetPath.toLowerCase()) {
    const rule = `must be ${PACKET_PATHS.join(" or ")}`;
    errors.push(invalid(`${CONFIG_ROOT}.${GO_TYPE}.PacketPath`, packetPath, rule));
  }
  for (const [index, name] of packetInterfaces.entries()) {
    if (isInterfaceChoice(name)) continue;
    const rule = `must be the name of an interface (${INTERFACE_NAME_RULE}), or the beginning of one and *`;
    errors.push(invalid(`${CONFIG_ROOT}.${GO_TYPE}.PacketInterfaces[${index}]`, name, rule));
  }
  return errors;
}

/** The kernel takes `*` within a name as well; here it is taken for an attempt at a pattern. */
function isInterfaceChoice(name: string): boolean {
  if (name.slice(0, -1).includes("*")) return false;
  return name.endsWith("*") ? isInterfaceNamePrefix(name.slice(0, -1)) : isInterfaceName(name);
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
  packetPath: "text",
  packetInterfaces: "texts",
} as const;

/** The value of `pinFolder` that asks for none. */
export const NO_FOLDER = "none";

const GO_TYPE = "KubeProxyEBPFConfiguration";

function pathErrors({ cgroupRoot, pinFolder }: EbpfConfig): readonly string[] {
  const errors: string[] = [];
  if (cgroupRoot !== "" && !cgroupRoot.startsWith("/")) {
    errors.push(invalid(`${CONFIG_ROOT}.${GO_TYPE}.CgroupRoot`, cgroupRoot, "must be an absolute path, or empty"));
  }
  if (!["", NO_FOLDER].includes(pinFolder) && !pinFolder.startsWith("/")) {
    const rule = `must be an absolute path, ${NO_FOLDER}, or empty`;
    errors.push(invalid(`${CONFIG_ROOT}.${GO_TYPE}.PinFolder`, pinFolder, rule));
  }
  return errors;
}

/** Whether the section says anything; otherwise it is left out, so that upstream can read the rest. */
function saysSomething({ mode, ebpf }: DraftConfig): boolean {
  const { cgroupRoot, pinFolder, hostNamespaceOnly, holdNodePorts, packetInterfaces } = ebpf;
  if (cgroupRoot !== "" || pinFolder !== "" || packetInterfaces.length > 0) return true;
  if (packetPathOf(ebpf) !== PACKET_PATHS[0]) return true;
  return mode === "ebpf" || hostNamespaceOnly || holdNodePorts || ebpf.masqueradeBit !== DEFAULT_MASQUERADE_BIT;
}

export const PACKET_PATH_FLAG = flag({
  name: "ebpf-packet-path",
  type: stringType,
  initial: PACKET_PATHS[0],
  isExtension: true,
  help: "What leads packets of other machines in ebpf mode: Nftables (the rules), or Tcx (programs at the node's interfaces choose the endpoint and the kernel's conntrack translates; the rules lead what is left. Linux 6.7).",
  overlay: (config, packetPath) => ({ ...config, ebpf: { ...config.ebpf, packetPath } }),
});

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
    packetPath: ebpf.packetPath === "" ? PACKET_PATHS[0] : ebpf.packetPath,
    packetInterfaces: ebpf.packetInterfaces,
  }),
  errors: ({ mode, ebpf }) =>
    mode === "ebpf"
      ? [...masqueradeBitErrors(GO_TYPE, ebpf.masqueradeBit), ...pathErrors(ebpf), ...packetErrors(ebpf)]
      : [],
  encode(draft, { masqueradeAll, periods }) {
    if (!saysSomething(draft)) return undefined;
    const { masqueradeBit, cgroupRoot, pinFolder, hostNamespaceOnly, holdNodePorts, packetInterfaces } = draft.ebpf;
    const sockets = { cgroupRoot, pinFolder, hostNamespaceOnly, holdNodePorts };
    return {
      masqueradeBit,
      masqueradeAll,
      ...periods,
      ...sockets,
      packetPath: packetPathOf(draft.ebpf),
      packetInterfaces,
    };
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
    PACKET_PATH_FLAG,
    flag({
      name: "ebpf-packet-interfaces",
      type: stringListType,
      initial: [],
      isExtension: true,
      help: "Interfaces where packets meet programs with --ebpf-packet-path Tcx: names, eth* for all that begin so; empty: those with the node's address.",
      overlay: (config, packetInterfaces) => ({ ...config, ebpf: { ...config.ebpf, packetInterfaces } }),
    }),
  ],
};
