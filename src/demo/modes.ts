/** The proxy modes that the demo can show; a new mode is one line here. */

/** What a mode's users can see of it. */
export interface ModeTraits {
  /** Node ports answer on 127.0.0.1 of the node (IPv4). */
  readonly localhostNodePorts: boolean;
  /**
   * The node itself is refused at an external address without endpoints. In iptables mode nothing in OUTPUT looks at those
   * (reference iptables.md §2), so its packets leave by the default route and nobody answers.
   */
  readonly refusesNodeAtExternalAddresses: boolean;
}

export const demoModes = {
  iptables: { localhostNodePorts: true, refusesNodeAtExternalAddresses: false },
  nftables: { localhostNodePorts: false, refusesNodeAtExternalAddresses: true },
} satisfies Record<string, ModeTraits>;

export type DemoMode = keyof typeof demoModes;

/** Whether the text names a mode that the demo can show. Pure. */
export function isDemoMode(text: string): text is DemoMode {
  return Object.hasOwn(demoModes, text);
}
