/** Tells when an address of this network namespace comes or goes. One subscription, however many want to know. */
import { NETLINK_ROUTE } from "../netlink/constants.ts";
import { Listeners, subscribe } from "../netlink/subscription.ts";
import { RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR } from "./rtnetlink.ts";

/** Of either family; a change is told once or more often, never too seldom. */
export class AddressWatch {
  readonly #listeners = new Listeners<{ readonly onChange: () => void }>(() => this.#stop.abort());
  #stop = new AbortController();

  /** Calls back until the signal aborts, and then resolves. Rejects when the kernel does not let us listen (any more). */
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
      groups: [RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR],
      onMessage: tell,
      onOverrun: tell,
      signal: this.#stop.signal,
      receiveBufferBytes: 256 * 1024,
    }).catch((error: unknown) => this.#listeners.fail(error));
  }
}
