/** Watches the addresses of this network namespace, or all that links and addresses do. All listeners share one subscription. */
import { NETLINK_ROUTE } from "../netlink/constants.ts";
import { Listeners, subscribe } from "../netlink/subscription.ts";
import { RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK } from "./rtnetlink.ts";

/** Watches both families. A change is reported at least once. */
export class AddressWatch {
  readonly #listeners = new Listeners<{ readonly onChange: () => void }>(() => this.#stop.abort());
  readonly #coversLinks: boolean;
  #stop = new AbortController();

  /** @param coversLinks includes links, and other network namespaces that links lead to. */
  constructor(coversLinks = false) {
    this.#coversLinks = coversLinks;
  }

  /** Calls `onChange` until the signal aborts, and then resolves. Rejects if the subscription fails. */
  watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    const watching = this.#listeners.join({ onChange }, signal);
    if (!signal.aborted && this.#listeners.size === 1) this.#start();
    return watching;
  }

  #start(): void {
    this.#stop = new AbortController();
    const tell = (): void => {
      for (const { onChange } of this.#listeners) onChange();
    };
    subscribe({
      protocol: NETLINK_ROUTE,
      groups: [RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, ...(this.#coversLinks ? [RTNLGRP_LINK] : [])],
      coversNamespaces: this.#coversLinks,
      onMessage: tell,
      onOverrun: tell,
      signal: this.#stop.signal,
      receiveBufferBytes: 256 * 1024,
    }).catch((error: unknown) => this.#listeners.fail(error));
  }
}
