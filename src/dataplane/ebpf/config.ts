/** The settings of the eBPF mode. The section is ours: upstream has no such mode. */
import type { DraftConfig } from "../../config/config.ts";
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";
import { flag } from "../../config/flag.ts";
import { boolType, stringType } from "../../config/flag-types.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../config/node-port-primary.ts";
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
}

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  cgroupRoot: "text",
  pinFolder: "text",
  hostNamespaceOnly: "bool",
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
  const { cgroupRoot, pinFolder, hostNamespaceOnly } = ebpf;
  if (cgroupRoot !== "" || pinFolder !== "") return true;
  return mode === "ebpf" || hostNamespaceOnly || ebpf.masqueradeBit !== DEFAULT_MASQUERADE_BIT;
}

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
  }),
  errors: ({ mode, ebpf }) =>
    mode === "ebpf" ? [...masqueradeBitErrors(GO_TYPE, ebpf.masqueradeBit), ...pathErrors(ebpf)] : [],
  encode(draft, { masqueradeAll, periods }) {
    if (!saysSomething(draft)) return undefined;
    const { masqueradeBit, cgroupRoot, pinFolder, hostNamespaceOnly } = draft.ebpf;
    return { masqueradeBit, masqueradeAll, ...periods, cgroupRoot, pinFolder, hostNamespaceOnly };
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
  ],
};
