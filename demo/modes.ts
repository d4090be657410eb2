/** The proxy modes that the demo can show; a new mode is one line here. */
import type { Protocol } from "../src/cluster/objects.ts";

/** What a mode's users can see of it. */
export interface ModeTraits {
  /** Protocols whose node ports answer on 127.0.0.1 of the node (IPv4). */
  readonly localhostNodePorts: readonly Protocol[];
  /**
   * The node itself is refused at an external address without endpoints. In iptables mode nothing in OUTPUT looks at those
   * (reference iptables.md §2), so its packets leave by the default route and nothing answers.
   */
  readonly refusesNodeAtExternalAddresses: boolean;
  /** Pods see who asks them, where the policies allow it. Otherwise the proxy process asks in its own name. */
  readonly isTransparent: boolean;
  /** Pods and the node itself are served at an external IP that no machine has. */
  readonly servesExternalIPsInside: boolean;
  /**
   * Service addresses are the node's own, with virtual servers of the kernel behind them (reference legacy-modes.md §2): a
   * Local policy binds the node and its pods, too, as long as there is a local endpoint, and the node asks an external address
   * from that address.
   */
  readonly hasVirtualServers?: true;
}

const ALL: readonly Protocol[] = ["TCP", "UDP", "SCTP"];
const inKernel = { isTransparent: true, servesExternalIPsInside: true } as const;

export const demoModes = {
  iptables: { ...inKernel, localhostNodePorts: ALL, refusesNodeAtExternalAddresses: false },
  nftables: { ...inKernel, localhostNodePorts: [], refusesNodeAtExternalAddresses: true },
  ipvs: { ...inKernel, localhostNodePorts: [], refusesNodeAtExternalAddresses: true, hasVirtualServers: true },
  userspace: {
    // The answer to a datagram comes from 127.0.0.1, which is not the address that the rules wrote into the question.
    localhostNodePorts: ["TCP"],
    refusesNodeAtExternalAddresses: true,
    isTransparent: false,
    servesExternalIPsInside: false,
  },
} as const satisfies Record<string, ModeTraits>;

export type DemoMode = keyof typeof demoModes;

/** Whether the text names a mode that the demo can show. Pure. */
export function isDemoMode(text: string): text is DemoMode {
  return Object.hasOwn(demoModes, text);
}
